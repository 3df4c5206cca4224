/*
 * fa2-tune explain: the runtime's decision for a problem on a card, without compiling or launching.
 *
 * It asks the runtime's own planner (tuner/report/predict.h). It cannot see what the runtime finds out only when it
 * loads a kernel, such as a driver that refuses it. If the call would fail, that is the answer, and the exit status
 * says so, too. With several SMs, it is enough if one of them serves the problem.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "runtime/plan/choose.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/report/explanation.h"
#include "tuner/report/progress.h"
#include "tuner/report/terminal.h"

typedef struct session {
    fa2i_options options;
    fa2i_generator *generator;
    char *path;             /* of the database; NULL: none is used */
    fa2i_cache *cache;      /* NULL: there is no database */
    const char *kept;       /* says what happens to code that a call compiles */
    bool *served;           /* per shape: some SM serves it; owned */
    bool fails;             /* some call would fail although a family serves it */
    size_t explained;       /* number of problems, on all cards */
    fa2i_progress progress; /* total 0: no progress is shown */
} session;

static void session_done(session *s)
{
    fa2i_cache_close(s->cache);
    fa2i_generator_destroy(s->generator);
    fa2i_free(s->path);
    fa2i_free(s->served);
    fa2i_options_done(&s->options);
}

static fa2_status check_options(const fa2i_options *options)
{
    if (options->shapes.count == 0)
        return fa2i_fail(FA2_E_INVALID, "explain needs --shape, for example --shape Hq=8,Sq=512,D=64");
    if (options->device == FA2I_DEVICE_ALL || (options->device >= 0) == (options->arch_count > 0))
        return fa2i_fail(FA2_E_INVALID, "explain needs one of --device N and --arch sm_86");
    return FA2_OK;
}

static const char *what_is_kept(const session *s)
{
    if (s->path == NULL)
        return "not kept: there is no place for a database";
    if (s->cache == NULL)
        return "kept if the database can be made";
    return access(s->path, W_OK) == 0 ? "kept in the database" : "not kept: the database cannot be written";
}

static fa2_status open_session(session *s, int argc, char **argv)
{
    fa2i_card card;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(
        argc, argv, FA2I_OPT_SHAPES | FA2I_OPT_DEVICE | FA2I_OPT_ARCH | FA2I_OPT_DB | FA2I_OPT_JSON | FA2I_OPT_EXPLAIN,
        &s->options));
    FA2_TRY(fa2i_generator_create(&s->generator));
    FA2_TRY(fa2i_archs_find(s->generator, &s->options));
    FA2_TRY(check_options(&s->options));
    for (size_t i = 0; i < s->options.arch_count; i++) /* checks all of them before the first is explained */
        FA2_TRY(fa2i_archs_card(s->generator, &s->options, i, &card));
    FA2_TRY(FA2I_NEW(s->served, s->options.shapes.count));
    FA2_TRY(fa2i_database_open_if_any(s->options.db, "explaining", &s->path, &s->cache));
    s->kept = what_is_kept(s);
done:
    return st;
}

static void note_status(session *s, size_t shape, const fa2i_explained *explained)
{
    const fa2i_predicted *f = &explained->predicted;
    const bool served = !fa2i_explained_is_unserved(explained);
    s->served[shape] |= served;
    s->fails |= served && f->status != FA2_OK;
    if (f->status == FA2_OK)
        return;
    if (s->options.arch_count > 1)
        fa2i_note(&s->progress, "fa2-tune: sm_%d: the call fails: %s", explained->card->arch, f->message);
    else
        fa2i_note(&s->progress, "fa2-tune: the call fails: %s", f->message);
}

static fa2_status explain(session *s, fa2i_predictor *predictor, size_t shape)
{
    fa2i_explained explained = {0};
    fa2_status st = fa2i_explained_make(predictor, &s->options.shapes.items[shape], &explained);
    if (st != FA2_OK)
        return st;
    explained.kept = s->kept;
    note_status(s, shape, &explained);
    if (s->explained++ > 0)
        fputs(s->options.json ? ",\n" : "\n", stdout);
    if (s->options.json)
        fa2i_explained_print_json(&explained, stdout);
    else
        st = fa2i_explained_print(&explained, stdout);
    fa2i_explained_done(&explained);
    fflush(stdout); /* many take minutes, and the reader should see each at once */
    if (s->progress.total > 0)
        fa2i_progress_step(&s->progress, NULL);
    return st;
}

/* Shows progress if the entries do not go to the terminal. */
static void begin_progress(session *s)
{
    const size_t cards = s->options.arch_count > 0 ? s->options.arch_count : 1;
    const size_t total = cards * s->options.shapes.count;
    if (total > 1 && fa2i_terminal_width(stderr) > 0 && fa2i_terminal_width(stdout) == 0)
        fa2i_progress_begin(&s->progress, "explaining", total);
}

static fa2_status explain_on(session *s, const fa2i_card *card)
{
    fa2i_predictor predictor = {0};
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_predictor_init(&predictor, s->generator, s->cache, s->path, card));
    FA2_TRY(fa2i_predictor_find_share(&predictor));
    if (s->options.device >= 0)
        fa2i_predictor_be_here(&predictor);
    if (s->options.never_compile)
        predictor.planner.no_compiler = FA2_E_FORBIDDEN;
    for (size_t i = 0; i < s->options.shapes.count; i++)
        FA2_TRY(explain(s, &predictor, i));
done:
    fa2i_predictor_done(&predictor);
    return st;
}

static bool some_call_fails(const session *s)
{
    bool some = s->fails;
    for (size_t i = 0; i < s->options.shapes.count; i++)
        some |= !s->served[i];
    return some;
}

int fa2i_cmd_explain(int argc, char **argv)
{
    session s = {0};
    fa2_status st = FA2_OK;
    bool in_array = false;
    int exit_status = FA2I_EXIT_OK;
    FA2_TRY(open_session(&s, argc, argv));
    in_array = s.options.json;
    if (in_array)
        putchar('[');
    begin_progress(&s);
    for (size_t i = 0; i == 0 || i < s.options.arch_count; i++) {
        fa2i_card card;
        FA2_TRY(fa2i_archs_card(s.generator, &s.options, i, &card));
        FA2_TRY(explain_on(&s, &card));
    }
    exit_status = some_call_fails(&s) ? FA2I_EXIT_FAILED : FA2I_EXIT_OK;
done:
    if (in_array)
        puts("]"); /* also after a failure, so that the output can be parsed */
    if (s.progress.total > 0)
        fa2i_progress_end(&s.progress);
    session_done(&s);
    return st != FA2_OK ? fa2i_report_failure(st) : exit_status;
}
