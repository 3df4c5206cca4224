/*
 * A server that runs for weeks: many different shapes with one context, on the fake driver. Memory stays within its
 * limit. The cost of a call with a new shape does not depend on how many came before.
 *
 * Usage: test_server              each way with some shapes, in its own process, with bounds
 *        test_server WAY COUNT    one way with COUNT shapes; prints its figures
 *
 * Ways: forward, backward, packed (each with another total), prepare, workspace, explain, counted (FA2_CAPTURE), pairs
 * (of Sq and Sk: many ask the model), known (one shape: the launch alone), threads (four at once, new and known
 * shapes). Only by hand, because each shape asks the model: unmapped (an H200 with strides that no tensor map can
 * express).
 *
 * The bounds hold on any machine: memory, and the median time of a call near the end relative to one near the
 * beginning.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "check.h"
#include "fa2.h"
#include "fake_cuda.h"

enum {
    SHAPES = 20000,       /* the tables are full by then */
    MANY_SHAPES = 100000, /* for the ways with the cheapest new shapes */
    BLOCK = 1000,         /* calls per median */
    WARM_UP = 4,          /* blocks that do not count, because classes and kernels are new */
    MEMORY_MB = 64,       /* as fa2.h says, for any number of shapes */
    SLOWER_MOST = 4,      /* limit of the ratio of times */
    LENGTHS = 25000,      /* numbers of keys; after them the heads change */
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Returns the resident memory of this process. */
static double memory_mb(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%*d %ld", &pages) == 1);
    if (file != NULL)
        fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

/* ---- shapes ---- */

static fa2_problem decode(long n)
{
    const int32_t heads = 8 * (int32_t)(1 + n / LENGTHS);
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .batch = 1,
                         .heads_q = heads,
                         .heads_kv = 8,
                         .seq_q = 1,
                         .seq_k = 1 + (int32_t)(n % LENGTHS),
                         .head_dim = 64,
                         .causal = 1};
}

static fa2_problem packed(long n)
{
    fa2_problem problem = decode(n);
    problem.varlen = 1;
    problem.batch = 16;
    problem.seq_q = problem.seq_k = 4096;
    problem.total_q = problem.total_k = 4096 + (int32_t)(n % LENGTHS);
    return problem;
}

static fa2_problem gradients(long n)
{
    fa2_problem problem = decode(n);
    problem.op = FA2_OP_BACKWARD;
    problem.seq_q = 64;
    return problem;
}

/* ---- calls: the fake driver reads and writes no tensor ---- */

static void *at(int place)
{
    return (void *)((uintptr_t)(place + 1) << 41);
}

static fa2_tensor tensor_at(const fa2_problem *problem, int place)
{
    const int64_t row = (int64_t)problem->heads_q * problem->head_dim;
    return (fa2_tensor){at(place), INT64_C(1) << 30, row, problem->head_dim};
}

static fa2_status call_forward(fa2_context *context, const fa2_problem *problem, int64_t stride_batch)
{
    fa2_forward_args args = {.struct_bytes = sizeof(fa2_forward_args),
                             .q = tensor_at(problem, 0),
                             .k = tensor_at(problem, 1),
                             .v = tensor_at(problem, 2),
                             .o = tensor_at(problem, 3),
                             .workspace = at(4),
                             .workspace_bytes = (size_t)1 << 40,
                             .cu_seqlens_q = at(5),
                             .cu_seqlens_k = at(6)};
    args.k.stride_batch = stride_batch;
    return fa2_forward(context, problem, &args, NULL);
}

static fa2_status run_forward(fa2_context *context, long n)
{
    const fa2_problem problem = decode(n);
    return call_forward(context, &problem, 1 << 30);
}

static fa2_status run_known(fa2_context *context, long n)
{
    (void)n;
    return run_forward(context, 999);
}

static fa2_status run_packed(fa2_context *context, long n)
{
    const fa2_problem problem = packed(n);
    return call_forward(context, &problem, 1 << 30);
}

static fa2_status run_unmapped(fa2_context *context, long n)
{
    fa2_problem problem = decode(0);
    problem.batch = 2;
    problem.seq_q = problem.seq_k = 4096 + (int32_t)n;
    if (n == 0) {
        CHECK_EQ(call_forward(context, &problem, 1 << 30), FA2_OK);
        CHECK_STR(fake.launches[0].function, "fwd_sm90");
    }
    const fa2_status st = call_forward(context, &problem, INT64_C(1) << 39);
    if (n == 0)
        CHECK_STR(fake.launches[1].function, "fwd_sm80");
    return st;
}

static fa2_status run_pairs(fa2_context *context, long n)
{
    fa2_problem problem = decode(0);
    problem.seq_q = 1 + (int32_t)(n % 1000);
    problem.seq_k = 1000 + (int32_t)(n / 1000);
    return call_forward(context, &problem, 1 << 30);
}

/* ---- threads ---- */

typedef struct work {
    fa2_context *context;
    long first;
    int failed;
} work;

static void *run_some(void *user)
{
    work *w = user;
    for (long i = 0; i < BLOCK / 4; i++) {
        w->failed += run_forward(w->context, w->first + i) != FA2_OK;
        w->failed += run_forward(w->context, i % 16) != FA2_OK;
    }
    return NULL;
}

/* Runs a block of calls at the block's first shape, and nothing at the others. */
static fa2_status run_threads(fa2_context *context, long n)
{
    work works[4];
    pthread_t threads[4];
    int failed = 0;
    if (n % BLOCK != 0)
        return FA2_OK;
    for (int i = 0; i < 4; i++) {
        works[i] = (work){context, n + i * (BLOCK / 4), 0};
        CHECK_EQ(pthread_create(&threads[i], NULL, run_some, &works[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        failed += works[i].failed;
    }
    return failed == 0 ? FA2_OK : FA2_E_INVALID;
}

static fa2_status run_backward(fa2_context *context, long n)
{
    const fa2_problem problem = gradients(n);
    const fa2_backward_args args = {.struct_bytes = sizeof(fa2_backward_args),
                                    .q = tensor_at(&problem, 0),
                                    .k = tensor_at(&problem, 1),
                                    .v = tensor_at(&problem, 2),
                                    .o = tensor_at(&problem, 3),
                                    .d_o = tensor_at(&problem, 4),
                                    .dq = tensor_at(&problem, 5),
                                    .dk = tensor_at(&problem, 6),
                                    .dv = tensor_at(&problem, 7),
                                    .lse = at(8),
                                    .workspace = at(9),
                                    .workspace_bytes = (size_t)1 << 40};
    return fa2_backward(context, &problem, &args, NULL);
}

static fa2_status run_prepare(fa2_context *context, long n)
{
    const fa2_problem problem = decode(n);
    return fa2_prepare(context, &problem);
}

static fa2_status run_workspace(fa2_context *context, long n)
{
    size_t bytes = 0;
    const fa2_problem problem = n % 2 == 0 ? decode(n) : gradients(n);
    return fa2_workspace_size(context, &problem, &bytes);
}

static fa2_status run_explain(fa2_context *context, long n)
{
    fa2_explanation explanation = {.struct_bytes = sizeof explanation};
    const fa2_problem problem = decode(n);
    return fa2_explain(context, &problem, &explanation);
}

static const struct way {
    const char *name;
    fa2_status (*run)(fa2_context *context, long n);
    long shapes;
} ways[] = {
    {"forward", run_forward, MANY_SHAPES}, {"backward", run_backward, SHAPES},   {"packed", run_packed, SHAPES},
    {"prepare", run_prepare, SHAPES},      {"workspace", run_workspace, SHAPES}, {"explain", run_explain, SHAPES},
    {"counted", run_forward, SHAPES},      {"unmapped", run_unmapped, 0},        {"pairs", run_pairs, SHAPES},
    {"known", run_known, SHAPES},          {"threads", run_threads, SHAPES}};

/* ---- measuring ---- */

static int by_number(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Returns the median of a block of calls that begins with shape n. */
static double block_us(fa2_context *context, const struct way *way, long n)
{
    static double us[BLOCK];
    int failed = 0;
    for (int i = 0; i < BLOCK; i++) {
        const double start = now_us();
        failed += way->run(context, n + i) != FA2_OK;
        us[i] = now_us() - start;
    }
    CHECK_EQ(failed, 0);
    qsort(us, BLOCK, sizeof *us, by_number);
    return us[BLOCK / 2];
}

static int measure(const struct way *way, long count)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/fa2-test-server-%ld.csv", (long)getpid());
    if (strcmp(way->name, "counted") == 0)
        setenv("FA2_CAPTURE", path, 1);
    setenv("FA2_SHARE", "", 1); /* ignore results installed on this machine */
    fake_install();
    if (way->run == run_unmapped)
        fake_become_h200();
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = ""};
    fa2_context *context = NULL;
    double first_us = 0, last_us = 0, longest_us = 0;
    const double before_mb = memory_mb(), start = now_us();
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    for (long n = 0; n + BLOCK <= count; n += BLOCK) {
        last_us = block_us(context, way, n);
        if (n <= WARM_UP * BLOCK)
            first_us = last_us;
        longest_us = last_us > longest_us ? last_us : longest_us;
    }
    const double grown_mb = memory_mb() - before_mb;
    printf("%-10s %8ld shapes: a call %6.2f us at first, %6.2f us at last (medians of %d, at most "
           "%.2f), %6.1f MB more, "
           "%.1f s\n",
           way->name, count, first_us, last_us, BLOCK, longest_us, grown_mb, (now_us() - start) * 1e-6);
    CHECK(last_us <= SLOWER_MOST * first_us);
    CHECK(SANITIZED || grown_mb <= MEMORY_MB);
    fa2_context_destroy(context);
    fake_uninstall();
    (void)unlink(path);
    return check_done();
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (argc == 3 && strcmp(argv[1], ways[i].name) == 0)
            return measure(&ways[i], atol(argv[2]));
        if (argc > 1 || ways[i].shapes == 0)
            continue;
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0)
            exit(measure(&ways[i], ways[i].shapes));
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    if (argc > 1) {
        fprintf(stderr, "usage: test_server [WAY COUNT]\n");
        return 2;
    }
    return check_done();
}
