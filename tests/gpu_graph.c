/*
 * Stream capture, streams and threads on a GPU: a kernel's result must not depend on how it was launched. `expected` is
 * the result of one plain launch. All other launches must give the same bits.
 */
#include <pthread.h>
#include <stdlib.h>
#include "runtime/base/alloc.h"
#include "tests/check.h"
#include "tests/gpu.h"
#include "tests/reference_compare.h"

enum { SEED = 2, THREADS = 8, LAUNCHES_PER_THREAD = 50, REPEATS = 250 };

#define SIZED .struct_bytes = sizeof(fa2_problem)

static const fa2_problem problems[] = {
    {SIZED, .batch = 2, .heads_q = 4, .heads_kv = 2, .seq_q = 113, .seq_k = 203, .head_dim = 64},
    {SIZED, .batch = 1, .heads_q = 8, .heads_kv = 8, .seq_q = 512, .seq_k = 512, .head_dim = 64, .causal = 1},
    {SIZED, .batch = 1, .heads_q = 4, .heads_kv = 1, .seq_q = 1, .seq_k = 799, .head_dim = 128},
    {SIZED, .batch = 1, .heads_q = 4, .heads_kv = 4, .seq_q = 300, .seq_k = 300, .head_dim = 40},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

/* A problem with inputs, its own tensors, and the bits that it must give. */
typedef struct subject {
    fa2_problem problem;
    gpu_inputs inputs;
    gpu_call call;
    uint16_t *expected, *o;
    float *lse;
} subject;

static fa2i_device device;
static fa2_context *context; /* shared by all tests and threads */

static void sync_stream(CUstream stream)
{
    gpu_must(&device, device.cuda->stream_synchronize(stream), "cuStreamSynchronize");
}

static CUstream new_stream(void)
{
    CUstream stream;
    gpu_must(&device, device.cuda->stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return stream;
}

static void drop_stream(CUstream stream)
{
    gpu_must(&device, device.cuda->stream_destroy(stream), "cuStreamDestroy");
}

static fa2_status forward(subject *s, CUstream stream)
{
    return fa2_forward(context, &s->problem, &s->call.args, stream);
}

/* Returns true if O is a plain launch's, and nothing else was changed. Poisons the outputs again. */
static bool as_expected(subject *s)
{
    size_t strays = gpu_call_get(&s->call, s->o, s->lse);
    bool same = memcmp(s->o, s->expected, gpu_o_elems(&s->problem) * sizeof *s->o) == 0;
    gpu_call_put(&s->call, &s->inputs);
    return same && strays == 0;
}

static void subject_init(const fa2_problem *problem, uint64_t seed, subject *ret_subject)
{
    subject s = {.problem = *problem};
    gpu_inputs_init(problem, 1, seed, &s.inputs);
    gpu_must_fa2(gpu_call_init(&device, context, problem, GPU_BSHD, true, &s.call), "prepare");
    s.expected = gpu_host(gpu_o_elems(problem), sizeof *s.expected);
    s.o = gpu_host(gpu_o_elems(problem), sizeof *s.o);
    s.lse = gpu_host(gpu_lse_elems(problem), sizeof *s.lse);
    gpu_call_put(&s.call, &s.inputs);
    gpu_must_fa2(forward(&s, NULL), "fa2_forward");
    sync_stream(NULL);
    gpu_call_get(&s.call, s.expected, s.lse);
    gpu_call_put(&s.call, &s.inputs);
    *ret_subject = s;
}

static void subject_done(subject *s)
{
    gpu_inputs_done(&s->inputs);
    gpu_call_done(&s->call);
    fa2i_free(s->expected);
    fa2i_free(s->o);
    fa2i_free(s->lse);
}

static void begin_capture(CUstream stream)
{
    gpu_must(&device, device.cuda->stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
}

static CUgraphExec end_capture(CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    gpu_must(&device, device.cuda->stream_end_capture(stream, &graph), "cuStreamEndCapture");
    gpu_must(&device, device.cuda->graph_instantiate(&exec, graph, 0), "cuGraphInstantiate");
    gpu_must(&device, device.cuda->graph_destroy(graph), "cuGraphDestroy");
    return exec;
}

static void replay(CUgraphExec exec, CUstream stream)
{
    gpu_must(&device, device.cuda->graph_launch(exec, stream), "cuGraphLaunch");
    sync_stream(stream);
}

/* A captured call runs at each replay, on the tensors' contents at that time. */
static void test_capture(subject *s)
{
    CUstream stream = new_stream();
    begin_capture(stream);
    CHECK_EQ(forward(s, stream), FA2_OK);
    CUgraphExec exec = end_capture(stream);
    CHECK(!as_expected(s)); /* capturing launches nothing: the poison is still there */
    replay(exec, stream);
    CHECK(as_expected(s));
    replay(exec, stream);
    CHECK(as_expected(s));

    gpu_inputs other;
    gpu_inputs_init(&s->problem, 1, SEED + 1000, &other);
    gpu_call_put(&s->call, &other);
    replay(exec, stream);
    CHECK(!as_expected(s));
    gpu_inputs_done(&other);
    gpu_must(&device, device.cuda->graph_exec_destroy(exec), "cuGraphExecDestroy");
    drop_stream(stream);
}

/* An unprepared problem in a capture is refused with a message, and the capture goes on. */
static void test_capture_unprepared(subject *s)
{
    CUstream stream = new_stream();
    subject unprepared = *s;
    unprepared.problem.causal ^= 1; /* another kernel. One key less would have the same */
    begin_capture(stream);
    CHECK_EQ(forward(&unprepared, stream), FA2_E_CAPTURE);
    CHECK_CONTAINS(fa2_last_message(), "fa2_prepare");
    CHECK_EQ(forward(s, stream), FA2_OK);
    CUgraphExec exec = end_capture(stream);
    replay(exec, stream);
    CHECK(as_expected(s));
    gpu_must(&device, device.cuda->graph_exec_destroy(exec), "cuGraphExecDestroy");
    drop_stream(stream);
}

/* More rows than blocks: in any order of blocks and warps, the bits are the same. */
static void test_repeats(void)
{
    static const fa2_problem repeated[] = {
        {SIZED, .batch = 1, .heads_q = 40, .heads_kv = 40, .seq_q = 640, .seq_k = 640, .head_dim = 64, .causal = 1},
        {SIZED, .batch = 1, .heads_q = 40, .heads_kv = 8, .seq_q = 640, .seq_k = 700, .head_dim = 128},
    };
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
        subject s;
        int different = 0;
        subject_init(&repeated[i], SEED, &s);
        for (int launch = 0; launch < REPEATS; launch++) {
            CHECK_EQ(forward(&s, NULL), FA2_OK);
            sync_stream(NULL);
            different += !as_expected(&s);
        }
        CHECK_EQ(different, 0);
        subject_done(&s);
    }
}

/* Calls on different streams do not affect each other. */
static void test_streams(subject *subjects)
{
    CUstream streams[PROBLEMS];
    for (size_t i = 0; i < PROBLEMS; i++)
        streams[i] = new_stream();
    for (int round = 0; round < LAUNCHES_PER_THREAD; round++)
        for (size_t i = 0; i < PROBLEMS; i++)
            CHECK_EQ(forward(&subjects[i], streams[i]), FA2_OK);
    for (size_t i = 0; i < PROBLEMS; i++) {
        sync_stream(streams[i]);
        CHECK(as_expected(&subjects[i]));
        drop_stream(streams[i]);
    }
}

/* fa2_forward returns while the GPU works: after twenty calls of about a millisecond or more each, the last one cannot
 * be finished. */
static void test_no_wait(void)
{
    const fa2_problem large = {.struct_bytes = sizeof(fa2_problem),
                               .batch = 4,
                               .heads_q = 16,
                               .heads_kv = 16,
                               .seq_q = 4096,
                               .seq_k = 4096,
                               .head_dim = 128};
    subject s;
    CUevent event;
    CUstream stream = new_stream();
    subject_init(&large, SEED, &s);
    gpu_must(&device, device.cuda->event_create(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    for (int i = 0; i < 20; i++)
        CHECK_EQ(forward(&s, stream), FA2_OK);
    gpu_must(&device, device.cuda->event_record(event, stream), "cuEventRecord");
    CHECK_EQ(device.cuda->event_query(event), CUDA_ERROR_NOT_READY);
    sync_stream(stream);
    CHECK_EQ(device.cuda->event_query(event), CUDA_SUCCESS);
    CHECK(as_expected(&s));
    gpu_must(&device, device.cuda->event_destroy(event), "cuEventDestroy");
    drop_stream(stream);
    subject_done(&s);
}

/* One thread of test_threads: its own tensors and stream, the shared context, all problems in turn.
 * No CUDA context is current in it while fa2 is called. */
typedef struct thread_result {
    int index, failures;
} thread_result;

static void *run_thread(void *argument)
{
    thread_result *result = argument;
    /* A different batch size makes the problem new to the context, so threads prepare in parallel. */
    fa2_problem problem = problems[result->index % PROBLEMS];
    problem.batch += result->index;
    subject s;
    gpu_must_fa2(fa2i_device_enter(&device), "device");
    subject_init(&problem, SEED + (uint64_t)result->index, &s);
    CUstream stream = new_stream();
    CUcontext current;
    fa2i_device_leave(&device);
    for (int i = 0; i < LAUNCHES_PER_THREAD; i++)
        result->failures += forward(&s, stream) != FA2_OK;
    gpu_must(&device, device.cuda->ctx_get_current(&current), "cuCtxGetCurrent");
    result->failures += current != NULL; /* fa2 leaves the thread as it was */
    gpu_must_fa2(fa2i_device_enter(&device), "device");
    sync_stream(stream);
    result->failures += !as_expected(&s);
    drop_stream(stream);
    subject_done(&s);
    fa2i_device_leave(&device);
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[THREADS];
    thread_result results[THREADS];
    for (int i = 0; i < THREADS; i++) {
        results[i] = (thread_result){.index = i};
        CHECK_EQ(pthread_create(&threads[i], NULL, run_thread, &results[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(results[i].failures, 0);
    }
}

/* The plain launch itself is right. Otherwise all launches could be equally wrong. */
static void test_expected(subject *s)
{
    size_t count = gpu_lse_elems(&s->problem);
    fa2i_row *rows = gpu_host(count, sizeof *rows);
    fa2i_reference reference;
    reference_comparison comparison;
    int32_t heads = s->problem.heads_q, seq = s->problem.seq_q;
    for (int32_t i = 0; i < (int32_t)count; i++)
        rows[i] = (fa2i_row){.batch = i / (heads * seq), .row = i / heads % seq, .head = i % heads};
    gpu_reference(&s->problem, &s->inputs, 0, 0, rows, count, &reference);
    reference_compare(&reference, s->problem.dtype, s->expected, NULL, &comparison);
    CHECK(comparison.error <= 1);
    fa2i_reference_done(&reference);
    fa2i_free(rows);
}

int main(void)
{
    int opened = gpu_open(&device);
    if (opened != 0)
        return opened;
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = ""};
    subject subjects[PROBLEMS];
    gpu_must_fa2(fa2_context_create(&config, &context), "fa2_context_create");
    printf("%s, seed %d\n", device.card.name, SEED);
    for (size_t i = 0; i < PROBLEMS; i++) {
        subject_init(&problems[i], SEED, &subjects[i]);
        test_expected(&subjects[i]);
        test_capture(&subjects[i]);
        test_capture_unprepared(&subjects[i]);
    }
    test_streams(subjects);
    test_repeats();
    test_no_wait();
    test_threads();
    for (size_t i = 0; i < PROBLEMS; i++)
        subject_done(&subjects[i]);
    fa2_context_destroy(context);
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return check_done();
}
