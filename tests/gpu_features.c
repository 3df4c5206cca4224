/*
 * All features on a GPU, through the public API: every two settings of a problem that go together (tests/pairs.h),
 * forward and backward, on the cases with which the tuner verifies, against the fp64 reference.
 *
 *     gpu_features [--arch 75] [--dtype fp16] [--every 5] [--small]
 *
 * --arch: kernels made for that SM, as PTX. --dtype: that one only. --every: each so many-th set of settings. --small:
 * each fifth case, and none for kernels that divide keys, for tools that make a launch take a second.
 *
 * Each problem gets the kernel that the runtime chooses without a database. A thread works through one set at a time,
 * with a context of its own, so that compilations and references run side by side.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "tests/check.h"
#include "tests/gpu.h"
#include "tests/pairs.h"
#include "tuner/judge/verify.h"
#include "tuner/report/progress.h"
#include "tuner/worker/bench_internal.h"

enum { MAX_THREADS = 16, PARTS_MAX = 2 * PAIRS_LISTS * PAIRS_SETS_MAX };
enum { TELL_EVERY_S = 10, SMALL_STEP = 5 };

typedef struct grid {
    pthread_mutex_t mutex;  /* guards what follows but the options */
    int arch, every, dtype; /* dtype -1: both */
    bool small;
    fa2_problem parts[PARTS_MAX];
    size_t found, part_count, next_part; /* found: with those that --every leaves out */
    size_t launches[2], failures;        /* launches: by operation */
    double told_s, worst;                /* worst: the largest error over its bound */
    char worst_case[FA2I_PROBLEM_CHARS];
} grid;

typedef struct launcher {
    grid *grid;
    fa2_context *context;
    fa2i_bench bench; /* its tensors */
} launcher;

/* ---- one case ---- */

/* Poisoned outputs, one launch; its outputs into `output`. */
static fa2_status launch(launcher *own, const fa2i_case *c, void *output, uint32_t *ret_overwritten)
{
    fa2i_bench *bench = &own->bench;
    size_t bytes = 0;
    fa2_status st = FA2_OK;
    uint32_t *guard = gpu_host(FA2I_GUARD_BYTES, 1);
    FA2_TRY(fa2i_bench_case(bench, c));
    FA2_TRY(fa2_workspace_size(own->context, &c->problem, &bytes));
    if (bytes > 0)
        FA2_TRY(fa2i_bench_give_workspace(bench, bytes));
    FA2_TRY(fa2i_bench_poison(bench));
    const fa2i_arguments arguments = fa2i_bench_arguments(bench, bytes);
    FA2_TRY(c->problem.op == FA2_OP_FORWARD
                ? fa2_forward(own->context, &c->problem, &arguments.forward, bench->stream)
                : fa2_backward(own->context, &c->problem, &arguments.backward, bench->stream));
    FA2_TRY(fa2i_bench_check(bench, bench->device.cuda->stream_synchronize(bench->stream),
                             "the launch"));
    FA2_TRY(fa2i_bench_count_overwritten(bench, bytes, guard, ret_overwritten));
    FA2_TRY(fa2i_bench_output(bench, NULL, 0, output));
done:
    fa2i_free(guard);
    return st;
}

static void note(grid *g, const fa2i_verify_case *vc, const fa2i_verification *verdict)
{
    char text[FA2I_PROBLEM_CHARS];
    const fa2_problem *p = &vc->c.problem;
    fa2i_problem_format(p, text, sizeof text);
    pthread_mutex_lock(&g->mutex);
    g->launches[p->op]++;
    if (verdict->outcome != FA2I_OUTCOME_OK) {
        g->failures++;
        fprintf(stderr, "%s, %s: %s\n", text, vc->name, verdict->detail);
    } else if (verdict->max_error > g->worst) {
        g->worst = verdict->max_error;
        snprintf(g->worst_case, sizeof g->worst_case, "%s", text);
    }
    pthread_mutex_unlock(&g->mutex);
}

static void run_case(launcher *own, const fa2i_verify_case *vc)
{
    fa2i_expected expected = {0};
    fa2i_verification verdict = {.outcome = FA2I_OUTCOME_FAULT};
    uint32_t overwritten = 0;
    gpu_must_fa2(fa2i_expected_all(&vc->c, 1, &expected), vc->name);
    void *output = gpu_host(expected.output_bytes, 1);
    if (launch(own, &vc->c, output, &overwritten) == FA2_OK)
        fa2i_expected_judge(&expected, vc->name, output, overwritten, &verdict);
    else
        snprintf(verdict.detail, sizeof verdict.detail, "%.500s", fa2_last_message());
    note(own->grid, vc, &verdict);
    fa2i_free(output);
    fa2i_expected_done(&expected);
}

/* ---- all of them ---- */

/* Those of a list, unless they are for the instructions of an SM that this one lacks. */
static void list_sets(grid *g, int arch, fa2_dtype dtype, pairs_list list)
{
    uint64_t sets[PAIRS_SETS_MAX];
    const bool own = list != PAIRS_FORWARD && list != PAIRS_BACKWARD;
    const size_t count = own && arch != 90 ? 0 : pairs_sets(list, sets);
    for (size_t i = 0; i < count; i++)
        if (g->found++ % (size_t)g->every == 0)
            g->parts[g->part_count++] = pairs_problem(list, dtype, sets[i], i + (size_t)dtype);
}

static void list_parts(grid *g, int arch)
{
    for (int dtype = FA2_FP16; dtype <= (arch >= 80 ? FA2_BF16 : FA2_FP16); dtype++)
        for (int list = 0; list < PAIRS_LISTS && (g->dtype < 0 || g->dtype == dtype); list++)
            list_sets(g, arch, (fa2_dtype)dtype, (pairs_list)list);
}

static const fa2_problem *take_part(grid *g)
{
    pthread_mutex_lock(&g->mutex);
    const fa2_problem *part = g->next_part < g->part_count ? &g->parts[g->next_part++] : NULL;
    const double now = fa2i_now_s();
    if (now - g->told_s >= TELL_EVERY_S) {
        fprintf(stderr, "%zu of %zu sets, %zu launches, %zu wrong\n", g->next_part, g->part_count,
                g->launches[0] + g->launches[1], g->failures);
        g->told_s = now;
    }
    pthread_mutex_unlock(&g->mutex);
    return part;
}

static void *run_thread(void *argument)
{
    grid *g = argument;
    launcher own = {.grid = g};
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    const fa2_config config = {.database = "", .arch = g->arch, .device_plus_one = 1};
    gpu_must_fa2(fa2i_bench_open(&own.bench, 0), "the device");
    gpu_must_fa2(fa2_context_create(&config, &own.context), "fa2_context_create");
    for (const fa2_problem *part = take_part(g); part != NULL; part = take_part(g)) {
        const size_t count =
            fa2i_judge_of(part->op)->cases(part, own.bench.device.card.sm_count, cases);
        for (size_t i = 1; i <= count; i++)
            if (!g->small || (i % SMALL_STEP == 0 && !cases[i % count].divided))
                run_case(&own, &cases[i % count]);
    }
    fa2_context_destroy(own.context);
    fa2i_bench_done(&own.bench);
    return NULL;
}

static void run_threads(grid *g)
{
    pthread_t threads[MAX_THREADS];
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const int count = processors < 1 ? 1 : processors > MAX_THREADS ? MAX_THREADS : (int)processors;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run_thread, g) != 0) {
            fprintf(stderr, "cannot start a thread\n");
            exit(1);
        }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static bool parse(int argc, char **argv, grid *g)
{
    g->dtype = -1;
    g->every = 1;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        fa2_dtype dtype;
        if (strcmp(argv[i], "--small") == 0) {
            g->small = true;
            continue;
        }
        if (strcmp(argv[i], "--arch") == 0 && atoi(value) > 0)
            g->arch = atoi(value);
        else if (strcmp(argv[i], "--every") == 0 && atoi(value) > 0)
            g->every = atoi(value);
        else if (strcmp(argv[i], "--dtype") == 0 && fa2i_dtype_parse(value, &dtype))
            g->dtype = (int)dtype;
        else
            return false;
        i++;
    }
    return true;
}

int main(int argc, char **argv)
{
    static grid g = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    fa2i_device device = {0};
    if (!parse(argc, argv, &g)) {
        fprintf(stderr,
                "usage: gpu_features [--arch SM] [--dtype fp16|bf16] [--every N] [--small]\n");
        return 2;
    }
    const int opened = gpu_open(&device);
    if (opened != 0)
        return opened;
    const int arch = g.arch != 0 ? g.arch : device.card.arch;
    if (arch > device.card.arch) {
        fprintf(stderr, "skipped: SM %d code does not run on SM %d\n", arch, device.card.arch);
        return CHECK_SKIP;
    }
    list_parts(&g, arch);
    printf("%s, kernels for SM %d, %zu sets of settings\n", device.card.name, arch, g.part_count);
    fflush(stdout);
    g.told_s = fa2i_now_s();
    run_threads(&g);
    printf("%zu launches forward, %zu backward, %zu wrong; worst error/bound %.3g, %s\n",
           g.launches[FA2_OP_FORWARD], g.launches[FA2_OP_BACKWARD], g.failures, g.worst,
           g.worst_case);
    CHECK_EQ(g.failures, 0);
    CHECK(g.launches[FA2_OP_FORWARD] > 0 && g.launches[FA2_OP_BACKWARD] > 0);
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return check_done();
}
