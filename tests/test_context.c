/*
 * The public interface on the fake driver: statuses, warm calls, capture, threads. Kernels come from the default rule.
 * test_planner.c tests the database's rules.
 */
#include <pthread.h>
#include "fa2.h"
#include "runtime/base/alloc.h"
#include "tuned_database.h"

enum { THREADS = 4, ROUNDS = 50 };

static _Alignas(256) char memory[256]; /* the fake driver reads no tensors */

static fa2_forward_args args_of(const fa2_problem *problem)
{
    const fa2_tensor tensor = {.data = memory,
                               .stride_batch = (int64_t)problem->seq_q * problem->heads_q * problem->head_dim,
                               .stride_seq = (int64_t)problem->heads_q * problem->head_dim,
                               .stride_head = problem->head_dim};
    fa2_forward_args args = {
        .struct_bytes = sizeof(fa2_forward_args), .q = tensor, .k = tensor, .v = tensor, .o = tensor};
    args.o.data = (void *)((uintptr_t)1 << 41);
    return args;
}

static fa2_context *create(const fa2_config *config)
{
    const fa2_config no_database = {.struct_bytes = sizeof(fa2_config), .database = ""};
    fa2_context *context = NULL;
    CHECK_EQ(fa2_context_create(config == NULL ? &no_database : config, &context), FA2_OK);
    return context;
}

static int trace_count(const char *name)
{
    int count = 0;
    for (const char *at = fake.trace; (at = strstr(at, name)) != NULL; at += strlen(name))
        count++;
    return count;
}

static void test_create_fails(void)
{
    fa2_context *context = NULL;
    fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = "", .device_plus_one = 3};

    fake_install();
    CHECK_EQ(fa2_context_create(&config, NULL), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "ret_context");
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_NO_DEVICE);
    config.device_plus_one = -1;
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "device_plus_one is -1");
    config = (fa2_config){.struct_bytes = sizeof(fa2_config), .database = "", .read_only = 7};
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "read_only is 7; it must be 0 or 1");
    config = (fa2_config){.struct_bytes = sizeof(fa2_config), .database = "", .never_compile = -1};
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "never_compile is -1; it must be 0 or 1");
    config = (fa2_config){.struct_bytes = sizeof(fa2_config), .database = "", .check_numbers = 2};
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "check_numbers is 2; it must be 0 or 1");
    config = (fa2_config){.struct_bytes = sizeof(fa2_config), .database = "", .rounding_every = 1};
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "rounding_every is 1; it must be 0 or more, and 0 if rounding is NULL");
    config = (fa2_config){.struct_bytes = sizeof(fa2_config), .database = "", .never_compile = 1, .arch = 75};
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "never_compile is 1 and config.arch 75; ");
    config = (fa2_config){.struct_bytes = sizeof(fa2_config), .database = "", .arch = -86};
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "arch is -86");
    static const int no_archs[] = {1, 42, 70, 81, 91, 1000};
    for (size_t i = 0; i < sizeof no_archs / sizeof *no_archs; i++) {
        config.arch = no_archs[i];
        CHECK_EQ(fa2_context_create(&config, &context), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), "it must be 0, or one of 75, 80, 86, 87, ");
    }
    fa2i_alloc_fail_at(1); /* of the list of them */
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_INVALID);
    fa2i_alloc_fail_at(0);
    fake.devices[0].arch = 70;
    config = (fa2_config){.struct_bytes = sizeof(fa2_config), .database = ""};
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_UNSUPPORTED);
    CHECK(context == NULL);
    CHECK_EQ(fake_live(), 0);

    fake_uninstall();
    setenv("FA2_CUDA_LIBRARY", "/nonexistent/libcuda.so", 1);
    CHECK_EQ(fa2_context_create(&config, &context), FA2_E_NO_DRIVER);
    CHECK_CONTAINS(fa2_last_message(), "/nonexistent/libcuda.so");
    unsetenv("FA2_CUDA_LIBRARY");
    CHECK(context == NULL);
}

static void test_arguments(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    fa2_problem bad = problem;
    fa2_forward_args args = args_of(&problem);
    fa2_explanation explanation = {.struct_bytes = sizeof explanation};
    size_t bytes = 77;

    fake_install();
    fa2_context *context = create(NULL);
    CHECK_EQ(fa2_prepare(NULL, &problem), FA2_E_INVALID);
    CHECK_EQ(fa2_prepare(context, NULL), FA2_E_INVALID);
    CHECK_EQ(fa2_explain(context, &problem, NULL), FA2_E_INVALID);
    CHECK_EQ(fa2_workspace_size(context, &problem, NULL), FA2_E_INVALID);
    CHECK_EQ(fa2_forward(NULL, &problem, &args, NULL), FA2_E_INVALID);
    CHECK_EQ(fa2_forward(context, NULL, &args, NULL), FA2_E_INVALID);
    CHECK_EQ(fa2_forward(context, &problem, NULL, NULL), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "args is NULL");

    bad.head_dim = 63;
    CHECK_EQ(fa2_prepare(context, &bad), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "head_dim");
    CHECK_EQ(fa2_workspace_size(context, &bad, &bytes), FA2_E_INVALID);
    CHECK_EQ(bytes, 77); /* untouched */
    CHECK_EQ(fa2_explain(context, &bad, &explanation), FA2_E_INVALID);
    CHECK_EQ(fa2_forward(context, &bad, &args, NULL), FA2_E_INVALID);
    bad = problem;
    bad.reserved[0] = 1;
    CHECK_EQ(fa2_prepare(context, &bad), FA2_E_INVALID);

    args.o.data = NULL;
    CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_E_INVALID); /* cold */
    CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_E_INVALID); /* and warm */
    CHECK_EQ(fake.launch_count, 0);
    CHECK_EQ(fa2_workspace_size(context, &problem, &bytes), FA2_OK);
    CHECK_EQ(bytes, 0);
    fa2_context_destroy(context);
    fa2_context_destroy(NULL);
    CHECK_EQ(fake_live(), 0);
}

/* Arguments that a call needs beside its problem, and messages about the other operation's problem. */
static void test_refused_calls(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    const fa2_forward_args good = args_of(&problem);
    const fa2_backward_args gradients = {.struct_bytes = sizeof gradients};

    fake_install();
    fa2_context *context = create(NULL);
    for (int warm = 0; warm < 2; warm++) {
        fa2_problem other = problem;
        fa2_forward_args args = good;
        other.op = (fa2_op)9;
        CHECK_EQ(fa2_forward(context, &other, &args, NULL), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), "op is 9; it must be one of 0 (forward), 1 (backward)");
        other.op = FA2_OP_BACKWARD;
        CHECK_EQ(fa2_forward(context, &other, &args, NULL), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), "op is backward; fa2_forward launches forward");
        CHECK_EQ(fa2_backward(context, &problem, &gradients, NULL), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), "op is forward; fa2_backward launches backward");
        other = problem;
        other.deterministic = 1;
        CHECK_EQ(fa2_prepare(context, &other), FA2_E_UNSUPPORTED);
        CHECK_CONTAINS(fa2_last_message(), "deterministic is 1; the operation forward has no deterministic");
        other = problem;
        other.softcap = 1; /* needs a value that is missing */
        CHECK_EQ(fa2_forward(context, &other, &args, NULL), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), "softcap is 0; it must be finite");
        other = problem;
        other.window = 1;
        other.window_left = -2;
        CHECK_EQ(fa2_forward(context, &other, &args, NULL), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), "window_left is -2; it must be at least -1");
        other = problem;
        other.reserved[0] = 1;
        CHECK_EQ(fa2_forward(context, &other, &args, NULL), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), "reserved[0] is 1; it must be 0");
        args.o = args.q;
        CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), "o shares memory with q");
        args = good;
        args.o.stride_head = args.o.stride_seq;
        CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), "rows of 64 elements would share memory");
        CHECK_EQ(fake.launch_count, 0);
        CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    }
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
}

/* Programs built before the last members were added, or after more were added, and invalid sizes. */
static void test_explanation_sizes(void)
{
    static const size_t bad[] = {0, 1, offsetof(fa2_explanation, tuned_problem) - 1, sizeof(fa2_explanation) + 1025,
                                 SIZE_MAX};
    const fa2_problem problem = tuned_problem(1, 512);
    struct {
        fa2_explanation e;
        char behind[64];
    } room;
    const unsigned char untouched = 0xa5;

    fake_install();
    fa2_context *context = create(NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memset(&room, untouched, sizeof room);
        room.e.struct_bytes = bad[i];
        CHECK_EQ(fa2_explain(context, &problem, &room.e), FA2_E_INVALID);
        CHECK_CONTAINS(fa2_last_message(), "struct_bytes is ");
        CHECK_EQ(*(unsigned char *)&room.e.rule, untouched);
    }
    CHECK_EQ(fake.compile_count, 0);
    const size_t good[] = {offsetof(fa2_explanation, registers), sizeof room.e, sizeof room};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        memset(&room, untouched, sizeof room);
        room.e.struct_bytes = good[i];
        CHECK_EQ(fa2_explain(context, &problem, &room.e), FA2_OK);
        CHECK_EQ(room.e.struct_bytes, good[i]);
        CHECK_EQ(room.e.rule, FA2_RULE_DEFAULT);
        CHECK_STR(room.e.target, "sm_86");
        const size_t end = good[i] < sizeof room.e ? good[i] : sizeof room.e;
        int changed = 0;
        for (size_t at = end; at < sizeof room; at++)
            changed += ((unsigned char *)&room)[at] != untouched;
        CHECK_EQ(changed, 0);
    }
    fa2_context_destroy(context);
}

static void test_version(void)
{
    CHECK_EQ(fa2_version(), FA2_VERSION);
    CHECK_EQ(fa2_version() / 10000, FA2_VERSION_MAJOR);
    CHECK_EQ(fa2_version() / 100 % 100, FA2_VERSION_MINOR);
}

static void test_forward(void)
{
    const fa2_problem problem = tuned_problem(2, 512);
    const fa2_forward_args args = args_of(&problem);
    fa2_explanation e = {.struct_bytes = sizeof e};

    fake_install();
    fa2_context *context = create(NULL);
    CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_OK); /* prepares by itself */
    CHECK_EQ(fake.launch_count, 1);
    CHECK_EQ(fake.launches[0].params.seq_q, 512);
    CHECK_EQ(fake.launches[0].params.q, (uintptr_t)memory);
    CHECK_CONTAINS(fake.launches[0].function, "fwd_sm80");

    CHECK_EQ(fa2_explain(context, &problem, &e), FA2_OK);
    CHECK_EQ(e.rule, FA2_RULE_DEFAULT);
    CHECK_EQ(e.measured, 0);
    CHECK(memcmp(&e.tuned_problem, &problem, sizeof(problem)) == 0);
    CHECK(e.median_us <= 0);
    CHECK_STR(e.device, "Fake RTX 3060");
    CHECK_CONTAINS(e.variant, "fwd_sm80");
    CHECK_STR(e.target, "sm_86");
    CHECK_EQ(e.registers, 128);
    CHECK_EQ(e.spill_bytes, 0);
    CHECK_EQ(e.smem_bytes, fake.launches[0].smem_bytes);
    CHECK_CONTAINS(e.reason, "first choice");
    CHECK_EQ(fake.compile_count, 1);
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
}

static fa2_counters counted(fa2_context *context)
{
    fa2_counters counters = {.struct_bytes = sizeof counters};
    CHECK_EQ(fa2_read_counters(context, &counters), FA2_OK);
    CHECK_EQ(counters.struct_bytes, sizeof counters);
    return counters;
}

static void test_counters(void)
{
    const fa2_problem problem = tuned_problem(2, 512), bad = tuned_problem(0, 512);
    const fa2_forward_args args = args_of(&problem);
    struct {
        fa2_counters counters;
        unsigned char after[8];
    } room;

    fake_install();
    fa2_context *context = create(NULL);
    fa2_counters counters = counted(context);
    CHECK_EQ(counters.misses + counters.miss_ns + counters.compiled + counters.calls_default, 0);
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_OK);
    CHECK_EQ(fa2_forward(context, &bad, &args, NULL), FA2_E_INVALID);
    CHECK_EQ(fa2_forward(context, NULL, &args, NULL), FA2_E_INVALID);
    counters = counted(context);
    CHECK_EQ(counters.calls_default, 3);
    CHECK_EQ(counters.calls_exact + counters.calls_nearest + counters.calls_arch + counters.calls_shipped, 0);
    CHECK_EQ(counters.calls_failed, 2);
    CHECK_EQ(counters.misses, 1);
    CHECK_EQ(counters.compiled, 1);
    CHECK_EQ(counters.unstored, 1); /* there is no database */
    CHECK_EQ(counters.loaded, 0);
    CHECK(counters.miss_ns > counters.compile_ns && counters.compile_ns > 0);

    memset(&room, 0x77, sizeof room); /* an older, shorter struct: nothing behind it is written */
    room.counters.struct_bytes = offsetof(fa2_counters, misses);
    CHECK_EQ(fa2_read_counters(context, &room.counters), FA2_OK);
    CHECK_EQ(room.counters.calls_failed, 2);
    CHECK_EQ(room.counters.misses, 0x7777777777777777);
    room.counters.struct_bytes = 7;
    CHECK_EQ(fa2_read_counters(context, &room.counters), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "counters.struct_bytes is 7; it must be sizeof(fa2_counters)");
    CHECK_EQ(fa2_read_counters(context, NULL), FA2_E_INVALID);
    CHECK_EQ(fa2_read_counters(NULL, &room.counters), FA2_E_INVALID);
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
}

/* What a context logged: how many lines of each level, and the last one. */
typedef struct heard {
    int lines[FA2_LOG_DEBUG + 1];
    char last[1024];
} heard;

static void hear_at(void *user, fa2_log_level level, const char *message)
{
    heard *h = user;
    h->lines[level]++;
    snprintf(h->last, sizeof h->last, "%s", message);
}

static void hear_never(void *user, const char *message)
{
    (void)user;
    CHECK_STR(message, "log is not called beside log_at");
}

static void test_log_levels(void)
{
    const fa2_problem problem = tuned_problem(2, 512);
    static const int expected[][3] = {{0, 1, 0}, {FA2_LOG_ERROR, 0, 0}, {FA2_LOG_WARNING, 1, 0}, {FA2_LOG_DEBUG, 1, 1}};
    fa2_context *context = NULL;
    fake_install();
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        heard h = {.last = ""};
        const fa2_config config = {.struct_bytes = sizeof config,
                                   .database = "",
                                   .log = hear_never,
                                   .log_user = &h,
                                   .log_at = hear_at,
                                   .log_level = expected[i][0]};
        context = create(&config);
        CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
        CHECK_EQ(h.lines[FA2_LOG_WARNING], expected[i][1]); /* nothing is tuned */
        CHECK_EQ(h.lines[FA2_LOG_DEBUG], expected[i][2]);
        CHECK_EQ(h.lines[FA2_LOG_ERROR] + h.lines[FA2_LOG_INFO], 0);
        if (expected[i][2] > 0)
            CHECK_CONTAINS(h.last, " by the rule default, compiled here, after ");
        fa2_context_destroy(context);
    }
    const fa2_config bad = {.struct_bytes = sizeof bad, .database = "", .log_level = FA2_LOG_DEBUG + 1};
    CHECK_EQ(fa2_context_create(&bad, &context), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "config.log_level is 5");
    CHECK_EQ(fake_live(), 0);
}

/* Device 1 is a Turing card, with its own family and its own primary context. */
static void test_second_device(void)
{
    const fa2_problem problem = tuned_problem(2, 512);
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = "", .device_plus_one = 2};
    const fa2_forward_args args = args_of(&problem);
    fa2_explanation e = {.struct_bytes = sizeof e};

    fake_install();
    fa2_context *context = create(&config);
    CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_OK);
    CHECK_EQ(fa2_explain(context, &problem, &e), FA2_OK);
    CHECK_STR(e.device, "Fake T4");
    CHECK_STR(e.target, "sm_75");
    CHECK_CONTAINS(fake.launches[0].function, "fwd_sm75");
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
}

/* A warm call makes exactly these driver calls, and allocates nothing. */
static void test_warm_path(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    const fa2_forward_args args = args_of(&problem);

    fake_install();
    CUcontext own = fake_context_push(0); /* the host program's context, current */
    fa2_context *context = create(NULL);
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    fake_trace_clear();
    fa2i_alloc_fail_at(0);
    CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_OK);
    CHECK_EQ(fa2i_alloc_fail_at(0), 0);
    CHECK_STR(fake.trace, "ctx_get_current launch_kernel ");

    CUcontext other = fake_context_push(1); /* another context is current: enter and leave */
    fake_trace_clear();
    CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_OK);
    CHECK_EQ(fa2i_alloc_fail_at(0), 0);
    CHECK_STR(fake.trace, "ctx_get_current ctx_push_current launch_kernel ctx_pop_current ");
    fake_context_pop(other);
    fa2_context_destroy(context);
    fake_context_pop(own);
    CHECK_EQ(fake_live(), 0);
}

/* Problems that differ only in values decided at run time share one module. */
static void test_kernels_are_shared(void)
{
    const fa2_problem a = tuned_problem(4, 1024), b = tuned_problem(4, 1032);
    fa2_explanation ea = {.struct_bytes = sizeof ea}, eb = ea;

    fake_install();
    fa2_context *context = create(NULL);
    CHECK_EQ(fa2_explain(context, &a, &ea), FA2_OK);
    CHECK_EQ(fa2_explain(context, &b, &eb), FA2_OK);
    CHECK_STR(ea.variant, eb.variant);
    CHECK_EQ(trace_count("module_load_data_ex"), 1);
    CHECK_EQ(fake.compile_count, 1);
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
}

static void test_capture(void)
{
    const fa2_problem ready = tuned_problem(1, 512), unready = tuned_problem(3, 512);
    const fa2_forward_args args = args_of(&ready);
    const fa2i_cuda_table *cuda = NULL;
    CUstream stream = NULL;
    CUgraph graph = NULL;

    fake_install();
    CUcontext own = fake_context_push(0);
    fa2_context *context = create(NULL);
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_OK);
    CHECK_EQ(fa2_prepare(context, &ready), FA2_OK);
    CHECK_EQ(cuda->stream_create(&stream, 0), CUDA_SUCCESS);
    CHECK_EQ(cuda->stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    CHECK_EQ(fa2_forward(context, &unready, &args, stream), FA2_E_CAPTURE);
    CHECK_CONTAINS(fa2_last_message(), "B=3");
    CHECK_CONTAINS(fa2_last_message(), "fa2_prepare");
    CHECK_EQ(fa2_forward(context, &ready, &args, stream), FA2_OK);
    CHECK_EQ(cuda->stream_end_capture(stream, &graph), CUDA_SUCCESS); /* the capture is intact */
    CHECK_EQ(cuda->graph_destroy(graph), CUDA_SUCCESS);

    /* the default stream, while another one captures */
    fake_trace_clear();
    fake_fail_driver(2, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK_EQ(fa2_forward(context, &unready, &args, NULL), FA2_E_CAPTURE);
    CHECK_STR(fake.trace, "ctx_get_current stream_is_capturing ");
    fake_fail_driver(2, CUDA_ERROR_UNKNOWN);
    CHECK_EQ(fa2_forward(context, &unready, &args, NULL), FA2_E_CUDA);
    CHECK_CONTAINS(fa2_last_message(), "cuStreamIsCapturing");

    CHECK_EQ(fa2_forward(context, &unready, &args, stream), FA2_OK);
    CHECK_EQ(cuda->stream_destroy(stream), CUDA_SUCCESS);
    fa2_context_destroy(context);
    fake_context_pop(own);
    CHECK_EQ(fake_live(), 0);
}

/* The host program destroyed the CUDA context first, and with it the context's modules. */
static void test_context_gone(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    const fa2_forward_args args = args_of(&problem);

    fake_install();
    CUcontext own = fake_context_push(0);
    fa2_context *context = create(NULL);
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    fake_context_pop(own);
    CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_E_CUDA);
    fake_trace_clear();
    fa2_context_destroy(context);
    CHECK_EQ(trace_count("module_unload"), 0);
}

static fa2_context *shared_context;
static fa2_status thread_status[THREADS];

/* Each thread prepares, launches and explains the same problems in another order. */
static void *run_thread(void *user)
{
    fa2_status *st = user;
    int offset = (int)(st - thread_status);

    for (int round = 0; round < ROUNDS; round++) {
        const fa2_problem problem = tuned_problem(1 + (round + offset) % 5, 512);
        const fa2_forward_args args = args_of(&problem);
        fa2_status got =
            round % 2 == 0 ? fa2_prepare(shared_context, &problem) : fa2_forward(shared_context, &problem, &args, NULL);
        fa2_explanation e = {.struct_bytes = sizeof e};
        if (got == FA2_OK)
            got = fa2_explain(shared_context, &problem, &e);
        if (got != FA2_OK)
            *st = got;
    }
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[THREADS];
    tuned_log log = {.count = 0};
    const fa2_config config = {
        .struct_bytes = sizeof(fa2_config), .database = "", .log = tuned_log_add, .log_user = &log};

    fake_install();
    shared_context = create(&config);
    for (int i = 0; i < THREADS; i++) {
        thread_status[i] = FA2_OK;
        CHECK_EQ(pthread_create(&threads[i], NULL, run_thread, &thread_status[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(thread_status[i], FA2_OK);
    }
    CHECK_EQ(fake.launch_count, THREADS * ROUNDS / 2);
    CHECK_EQ(log.count, 1); /* the problems differ in shape only */
    fa2_context_destroy(shared_context);
    CHECK_EQ(fake_live(), 0);
}

int main(void)
{
    test_create_fails();
    test_arguments();
    test_refused_calls();
    test_explanation_sizes();
    test_version();
    test_forward();
    test_counters();
    test_log_levels();
    test_second_device();
    test_warm_path();
    test_kernels_are_shared();
    test_capture();
    test_context_gone();
    test_threads();
    fake_uninstall();
    return check_done();
}
