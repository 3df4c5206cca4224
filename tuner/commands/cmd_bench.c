/*
 * fa2-tune bench: times that people can quote. It writes no database. Kernels run in the worker process.
 */
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"
#include "tuner/search/compile_all.h"
#include "tuner/bench/against.h"
#include "tuner/bench/precisions.h"
#include "tuner/bench/print.h"
#include "tuner/bench/scaling.h"
#include "tuner/commands/commands.h"
#include "tuner/commands/database.h"
#include "tuner/commands/interrupt.h"
#include "tuner/report/benchmark_file.h"

typedef struct session {
    fa2i_options options;
    fa2i_benchmarks all;
    fa2i_generator *generator;
    fa2i_cache *cache; /* NULL: there is no database */
    fa2i_format format;
    fa2i_benchmark *results; /* owned */
    fa2i_against against;
    size_t measured, failed, slower; /* problems */
} session;

static void session_done(session *s)
{
    fa2i_benchmarks_done(&s->all);
    fa2i_free(s->results);
    fa2i_rows_done(&s->against.earlier);
    fa2i_cache_close(s->cache);
    fa2i_generator_destroy(s->generator);
    fa2i_options_done(&s->options);
}

static fa2_status open_database(session *s)
{
    const fa2_status st = fa2i_database_open(s->options.db, FA2I_CACHE_READ, &s->cache);
    if (st != FA2_E_NOT_FOUND)
        return st;
    fprintf(stderr, "fa2-tune: %s; nothing is tuned\n", fa2_last_message());
    return FA2_OK;
}

/* The file is read first, so that a wrong one costs no measuring. */
static fa2_status read_earlier(session *s)
{
    const double above = s->options.fail_above;
    if (s->options.against == NULL)
        return above > 0 ? fa2i_fail(FA2_E_INVALID, "--fail-above needs --against FILE, an earlier result") : FA2_OK;
    s->against = (fa2i_against){.path = s->options.against, .most = above > 0 ? 1 + above : 0};
    const fa2_status st = fa2i_benchmark_file_times(s->against.path, &s->against.earlier);
    return st != FA2_OK ? st : fa2i_against_check(&s->against, s->options.cold);
}

static fa2_status open_session(session *s, int argc, char **argv)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_options_parse(
        argc, argv, FA2I_OPT_SHAPES | FA2I_OPT_DEVICE | FA2I_OPT_DB | FA2I_OPT_BENCH | FA2I_OPT_JSON, &s->options));
    if (s->options.device < 0)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "bench needs --device N, one device: `fa2-tune devices` lists them"));
    FA2_TRY(read_earlier(s));
    if (s->options.shapes.count == 0)
        FA2_TRY(fa2i_shapes_add_preset(&s->options.shapes, "seeds"));
    FA2_TRY(fa2i_scaling_extend(&s->options.shapes, s->options.scales));
    s->format = s->options.csv ? FA2I_FORMAT_CSV : s->options.json ? FA2I_FORMAT_JSON : FA2I_FORMAT_TEXT;
    FA2_TRY(fa2i_gpu_read(s->options.device, &s->all.gpu));
    FA2_TRY(fa2i_generator_create(&s->generator));
    if (s->options.precisions)
        FA2_TRY(fa2i_precisions_extend(s->generator, &s->all.gpu.card, &s->options.shapes));
    if (s->against.path != NULL) /* before minutes of measuring */
        FA2_TRY(fa2i_against_meets(&s->against, &s->all.gpu.card, s->options.shapes.items, s->options.shapes.count));
    FA2_TRY(open_database(s));
    s->all.kernels = (fa2i_kernel_list){.gpu = &s->all.gpu, .generator = s->generator, .cache = s->cache};
    s->all.runs = s->all.gpu.modelled ? 1 : s->options.runs > 0 ? (size_t)s->options.runs : FA2I_BENCHMARK_RUNS;
    s->all.cold = s->options.cold;
    s->all.precisions = s->options.precisions;
    s->all.rest_ms = s->all.gpu.modelled ? 0 : s->options.rest_ms;
    s->all.threads = (int)fa2i_compile_threads(0, SIZE_MAX);
    FA2_TRY(fa2i_benchmarks_open(&s->all));
done:
    return st;
}

/* The runtime's kernel must run. The kernels that it is compared with must be right if they can run. */
static bool has_failed(const fa2i_benchmark *b)
{
    bool failed = b->count == 0;
    for (size_t i = 0; i < b->count; i++) {
        const fa2i_timed *t = &b->timed[i];
        failed = failed || (t->outcome != FA2I_OUTCOME_OK && (i == 0 || !t->left_out));
    }
    return failed;
}

static void report_unmeasured(const fa2i_benchmark *b)
{
    fa2i_shown_print(stderr, "fa2-tune: %s: not measured: %s\n", fa2i_problem_shape(&b->problem).text, b->message);
}

static fa2_status run(session *s)
{
    fa2_status st = FA2_OK;
    const size_t count = s->options.shapes.count;
    FA2_TRY(FA2I_NEW(s->results, count));
    fa2i_bench_print_begin(&s->all, s->format, stdout);
    for (size_t i = 0; i < count && *s->all.stop == 0; i++) {
        fa2i_benchmark *b = &s->results[i];
        FA2_TRY(fa2i_benchmark_run(&s->all, &s->options.shapes.items[i], b));
        if (*s->all.stop != 0)
            break;
        FA2_TRY(fa2i_bench_print(&s->all, b, i, s->format, stdout));
        fflush(stdout);
        if (b->message[0] != '\0')
            report_unmeasured(b);
        s->measured++;
        s->failed += has_failed(b);
    }
done:
    fa2i_bench_print_end(s->format, stdout); /* completes the JSON in any case */
    if (st == FA2_OK && s->format == FA2I_FORMAT_TEXT)
        st = fa2i_scaling_print(s->results, s->measured, stdout);
    if (st == FA2_OK && s->format == FA2I_FORMAT_TEXT && s->options.precisions)
        st = fa2i_precisions_print(s->results, s->measured, stdout);
    if (st == FA2_OK && s->against.path != NULL && *s->all.stop == 0)
        st = fa2i_against_print(&s->against, &s->all.gpu.card, s->results, s->measured,
                                s->format == FA2I_FORMAT_TEXT ? stdout : stderr, &s->slower);
    return st;
}

static int exit_status(const session *s)
{
    if (*s->all.stop != 0)
        return FA2I_EXIT_INTERRUPTED;
    return s->failed + s->slower > 0 ? FA2I_EXIT_FAILED : FA2I_EXIT_OK;
}

int fa2i_cmd_bench(int argc, char **argv)
{
    session s = {.all = {.stop = fa2i_interrupt_watch()}};
    fa2_status st = FA2_OK;
    FA2_TRY(open_session(&s, argc, argv));
    FA2_TRY(run(&s));
done:;
    const int status = st == FA2_OK ? exit_status(&s) : fa2i_report_failure(st);
    session_done(&s);
    return status;
}
