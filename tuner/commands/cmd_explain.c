/*
 * fa2-tune explain: the runtime's decision for a problem on a card, without compiling or launching.
 *
 * It asks the same chooser as the runtime (runtime/plan/choose.h). What the runtime finds out only when
 * it loads a kernel (a driver that refuses it) is not seen here.
 */
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/plan/choose.h"
#include "runtime/cuda/device.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/report/explanation.h"

typedef struct session {
    fa2i_options options;
    fa2i_generator *generator;
    fa2i_cache *cache; /* NULL: there is no database */
    fa2i_card card;
    fa2i_foresight foresight;
} session;

static void session_done(session *s)
{
    fa2i_foresight_done(&s->foresight);
    fa2i_cache_close(s->cache);
    fa2i_generator_destroy(s->generator);
    fa2i_options_done(&s->options);
}

static fa2_status check_options(const fa2i_options *options)
{
    if (options->shapes.count == 0)
        return fa2i_fail(FA2_E_INVALID,
                         "explain needs --shape, for example --shape Hq=8,Sq=512,D=64");
    if (options->arch_count > 1)
        return fa2i_fail(FA2_E_INVALID,
                         "explain takes one architecture, and --arch names %zu; run it for each",
                         options->arch_count);
    if (options->device == FA2I_DEVICE_ALL || (options->device >= 0) == (options->arch_count > 0))
        return fa2i_fail(FA2_E_INVALID, "explain needs one of --device N and --arch sm_86");
    return FA2_OK;
}

/* The card of --device or --arch. */
static fa2_status find_card(session *s)
{
    const fa2i_cuda_table *cuda = NULL;
    if (s->options.device < 0)
        return fa2i_generator_card(s->generator, s->options.archs[0], &s->card);
    const fa2_status st = fa2i_cuda_get(&cuda);
    return st == FA2_OK ? fa2i_device_card(cuda, s->options.device, &s->card)
                        : fa2i_fail_prefix(st, "--arch sm_86 would need no GPU; --device %d",
                                           s->options.device);
}

/* A database that is not there is what the runtime meets before the first tuning: no error. */
static fa2_status open_database(session *s)
{
    const fa2_status st = fa2i_database_open(s->options.db, FA2I_CACHE_READ, &s->cache);
    if (st != FA2_E_NOT_FOUND)
        return st;
    fprintf(stderr, "fa2-tune: %s; explaining without a database\n", fa2_last_message());
    return FA2_OK;
}

static fa2_status open_session(session *s, int argc, char **argv)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(
        argc, argv, FA2I_OPT_SHAPES | FA2I_OPT_DEVICE | FA2I_OPT_ARCH | FA2I_OPT_DB | FA2I_OPT_JSON,
        &s->options));
    FA2_TRY(fa2i_generator_create(&s->generator));
    FA2_TRY(fa2i_archs_find(s->generator, &s->options));
    FA2_TRY(check_options(&s->options));
    FA2_TRY(find_card(s));
    FA2_TRY(open_database(s));
    fa2i_foresight_init(&s->foresight, s->generator, s->cache, &s->card);
    FA2_TRY(fa2i_foresight_find_share(&s->foresight));
done:
    return st;
}

int fa2i_cmd_explain(int argc, char **argv)
{
    session s = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(open_session(&s, argc, argv));
    if (s.options.json)
        putchar('[');
    for (size_t i = 0; i < s.options.shapes.count; i++) {
        fa2i_explained explained = {0};
        st = fa2i_explained_make(&s.foresight, &s.options.shapes.items[i], &explained);
        if (st == FA2_OK && i > 0)
            fputs(s.options.json ? ",\n" : "\n", stdout);
        if (st == FA2_OK && s.options.json)
            fa2i_explained_print_json(&explained, stdout);
        else if (st == FA2_OK)
            st = fa2i_explained_print(&explained, stdout);
        fa2i_explained_done(&explained);
        FA2_TRY(st);
    }
    if (s.options.json)
        puts("]");
done:
    session_done(&s);
    return st == FA2_OK ? FA2I_EXIT_OK : fa2i_report_failure(st);
}
