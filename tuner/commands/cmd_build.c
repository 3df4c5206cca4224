/*
 * fa2-tune build: one build per SM, then a summary of all.
 */
#include <stdio.h>
#include <string.h>
#include "runtime/base/text.h"
#include "tuner/search/build.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/commands/interrupt.h"
#include "tuner/report/progress.h"
#include "tuner/report/table.h"

/* With more winners than this, only `fa2-tune list` shows them. */
enum { WINNERS_SHOWN = 48 };

typedef struct session {
    fa2i_options options;
    fa2i_cache *cache;
    fa2i_generator *generator;
    fa2i_card cards[FA2I_ARCHS_MAX]; /* one per SM in options.archs */
    fa2i_build_result results[FA2I_ARCHS_MAX];
    size_t count; /* of results */
    const volatile sig_atomic_t *stop;
} session;

static void session_done(session *s)
{
    for (size_t i = 0; i < s->count; i++)
        fa2i_build_result_done(&s->results[i]);
    fa2i_generator_destroy(s->generator);
    fa2i_cache_close(s->cache);
    fa2i_options_done(&s->options);
}

/* Finds all errors of the caller before the first compilation. */
static fa2_status open_session(session *s, int argc, char **argv)
{
    fa2_status st = FA2_OK;
    bool absent = false;
    FA2_TRY(fa2i_options_parse(
        argc, argv, FA2I_OPT_SHAPES | FA2I_OPT_ARCH | FA2I_OPT_DB | FA2I_OPT_JOBS | FA2I_OPT_DRY_RUN | FA2I_OPT_JSON,
        &s->options));
    if (s->options.arch_count == 0 && !s->options.arch_all && !s->options.arch_native)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "build needs --arch, for example --arch sm_86"));
    FA2_TRY(fa2i_generator_create_stoppable(s->stop, &s->generator));
    FA2_TRY(fa2i_archs_find(s->generator, &s->options));
    for (size_t i = 0; i < s->options.arch_count; i++)
        FA2_TRY(fa2i_generator_card(s->generator, s->options.archs[i], &s->cards[i]));
    if (s->options.dry_run)
        FA2_TRY(fa2i_database_open_or_empty(s->options.db, &absent, &s->cache));
    else
        FA2_TRY(fa2i_database_open(s->options.db, FA2I_CACHE_WRITE, &s->cache));
done:
    return st;
}

static fa2i_build work_of(const session *s)
{
    return (fa2i_build){.cache = s->cache,
                        .generator = s->generator,
                        .shapes = &s->options.shapes,
                        .jobs = s->options.jobs,
                        .stop = s->stop};
}

/* Prints one SM of a --dry-run. */
static void print_predicted(const session *s, const fa2i_build_result *r, size_t threads, bool first)
{
    if (s->options.json) {
        fputs(first ? "[\n" : ",\n", stdout);
        fa2i_json_write(stdout,
                        "{'arch':'sm_%d','to_compile':%zu,'reused':%zu,'unserved':%zu,'threads':%zu,'seconds':%.1f}",
                        r->card.arch, r->compiled, r->reused, r->unserved, threads, r->seconds);
        return;
    }
    printf("sm_%d: to compile: %zu, compiled already: %zu, problems that it does not serve: %zu", r->card.arch,
           r->compiled, r->reused, r->unserved);
    if (r->compiled > 0)
        printf("; about %.0f s with %zu thread%s", r->seconds + 1, threads, fa2i_plural(threads));
    printf("\n");
}

/* Returns the exit status if nothing failed. served: problems that have kernels. */
static int status_of_served(size_t served, size_t unserved)
{
    if (served > 0 || unserved == 0)
        return FA2I_EXIT_OK;
    fprintf(stderr, "fa2-tune: none of the problems can run on these SMs\n");
    return FA2I_EXIT_USAGE;
}

static fa2_status predict_all(const session *s, int *ret_status)
{
    const fa2i_build build = work_of(s);
    fa2_status st = FA2_OK;
    size_t served = 0, unserved = 0;
    for (size_t i = 0; i < s->options.arch_count; i++) {
        fa2i_build_result r = {0};
        size_t threads = 0;
        st = fa2i_build_predict(&build, &s->cards[i], &r, &threads);
        if (st == FA2_OK)
            print_predicted(s, &r, threads, i == 0);
        served += s->options.shapes.count - r.unserved;
        unserved += r.unserved;
        if (s->options.json && (st == FA2_OK ? i + 1 == s->options.arch_count : i > 0))
            fputs("]\n", stdout); /* also if a later SM fails */
        if (st != FA2_OK)
            break;
    }
    if (st == FA2_OK)
        *ret_status = status_of_served(served, unserved);
    return st;
}

static fa2_status build_all(session *s)
{
    const fa2i_build build = work_of(s);
    fa2_status st = FA2_OK;
    while (st == FA2_OK && s->count < s->options.arch_count && *s->stop == 0) {
        st = fa2i_build_arch(&build, &s->cards[s->count], &s->results[s->count]);
        s->count += st == FA2_OK;
    }
    return st;
}

/* ---- tables ---- */

static fa2_status print_summary(const session *s)
{
    static const char *const titles[] = {"arch",     "card",   "target",  "winners", "unserved", "without",
                                         "compiled", "reused", "spilled", "failed",  "seconds"};
    fa2i_table table;
    fa2i_table_init(&table, "lllrrrrrrrr", titles);
    for (size_t i = 0; i < s->count; i++) {
        const fa2i_build_result *r = &s->results[i];
        fa2i_table_row(&table, "sm_%d\t%s\t%s\t%zu\t%zu\t%zu\t%zu\t%zu\t%zu\t%zu\t%.1f", r->card.arch, r->card.name,
                       r->target, r->winner_count, r->unserved, r->without, r->compiled, r->reused, r->spilled,
                       r->failed, r->seconds);
    }
    return fa2i_table_end(&table, stdout);
}

static fa2_status print_winners(const fa2i_build_result *result)
{
    static const char *const titles[] = {"problem", "model us", "regs", "spill B", "variant"};
    fa2i_table table;
    fa2i_table_init(&table, "lrrrl", titles);
    for (size_t i = 0; i < result->winner_count; i++) {
        const fa2i_built *built = &result->winners[i];
        fa2i_table_row(&table, "%s\t" FA2I_US "\t%d\t%d\t%s", fa2i_problem_shape(&built->problem).text, built->model_us,
                       built->registers, built->spill_bytes, fa2i_variant_brief(built->variant).text);
    }
    printf("\nsm_%d, winners by the cost model\n", result->card.arch);
    return fa2i_table_end(&table, stdout);
}

static fa2_status print_tables(const session *s)
{
    size_t winners = 0;
    fa2_status st = print_summary(s);
    for (size_t i = 0; i < s->count; i++)
        winners += s->results[i].winner_count;
    for (size_t i = 0; st == FA2_OK && winners <= WINNERS_SHOWN && i < s->count; i++)
        if (s->results[i].winner_count > 0)
            st = print_winners(&s->results[i]);
    if (winners > WINNERS_SHOWN)
        fa2i_shown_print(stdout, "\n%zu winners: fa2-tune list --db %s\n", winners, fa2i_cache_path(s->cache));
    return st;
}

/* ---- JSON ---- */

static void print_json(const session *s)
{
    fa2i_json_write(stdout, "{'database':%s,'archs':[", fa2i_cache_path(s->cache));
    for (size_t i = 0; i < s->count; i++) {
        const fa2i_build_result *r = &s->results[i];
        fputs(i == 0 ? "\n" : ",\n", stdout);
        fa2i_json_write(stdout,
                        "{'arch':'sm_%d','card':%s,'target':%s,'unserved':%zu,'without':%zu,'compiled':%zu,"
                        "'reused':%zu,'spilled':%zu,'failed':%zu,'seconds':%.3f,'winners':[",
                        r->card.arch, r->card.name, r->target, r->unserved, r->without, r->compiled, r->reused,
                        r->spilled, r->failed, r->seconds);
        for (size_t j = 0; j < r->winner_count; j++) {
            const fa2i_built *built = &r->winners[j];
            fputs(j == 0 ? "\n" : ",\n", stdout);
            fa2i_json_write(stdout, "{'problem':%s,'variant':%s,'registers':%d,'spill_bytes':%d,'model_us':%.3f}",
                            fa2i_problem_shape(&built->problem).text, built->variant, built->registers,
                            built->spill_bytes, built->model_us);
        }
        fputs("]}", stdout);
    }
    fputs("]}\n", stdout);
}

/* ---- the command ---- */

/* Returns the exit status, and explains it on stderr. */
static int exit_status(const session *s)
{
    size_t winners = 0, unserved = 0, without = 0;
    for (size_t i = 0; i < s->count; i++) {
        winners += s->results[i].winner_count;
        unserved += s->results[i].unserved;
        without += s->results[i].without;
    }
    if (*s->stop != 0) {
        fprintf(stderr, "fa2-tune: interrupted; what was compiled is in %s, and the same command goes on from there\n",
                fa2i_cache_path(s->cache));
        return FA2I_EXIT_INTERRUPTED;
    }
    if (without > 0) {
        fprintf(stderr, "fa2-tune: %zu problem(s) without a winner: no variant compiles\n", without);
        return FA2I_EXIT_FAILED;
    }
    return status_of_served(winners, unserved);
}

int fa2i_cmd_build(int argc, char **argv)
{
    session s = {.stop = fa2i_interrupt_watch()};
    fa2_status st = FA2_OK;
    int status = FA2I_EXIT_FAILED;
    FA2_TRY(open_session(&s, argc, argv));
    if (s.options.dry_run) {
        FA2_TRY(predict_all(&s, &status));
        FA2_TRY(fa2i_database_check_writable(s.options.db)); /* otherwise the run would fail at once */
        goto done;
    }
    FA2_TRY(build_all(&s));
    if (s.options.json)
        print_json(&s);
    else
        FA2_TRY(print_tables(&s));
    status = exit_status(&s);
done:
    if (st != FA2_OK)
        status = fa2i_report_failure(st);
    session_done(&s);
    return status;
}
