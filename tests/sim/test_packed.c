/*
 * Packed sequences in a captured graph, forward and backward. Between launches only the bounds change.
 *
 * In every input, rows before the first bound and from the last one on are NaN. All outputs and the workspace are NaN
 * before each launch. Afterwards these rows are 0 in O and in the gradients, and -infinity in LSE. The other rows are
 * numbers with the same bits as from calls without a graph.
 */
#include <cuda.h>
#include <math.h>
#include <string.h>
#include "fa2.h"
#include "tests/check.h"
#include "tests/sim/must.h"
#include "tuner/judge/case.h"
#include "tuner/judge/number.h"

enum { BATCH = 3, HEADS_Q = 4, HEADS_KV = 2, TOTAL_Q = 150, TOTAL_K = 200, LONGEST = 90, D = 40 };

/* q, k, v and dO are read; O and the gradients are written. */
enum { Q, K, V, DO, O, DQ, DK, DV, TENSORS };
static const bool is_of_keys[TENSORS] = {[K] = true, [V] = true, [DK] = true, [DV] = true};

static const struct bounds {
    int32_t q[BATCH + 1], k[BATCH + 1];
} bounds[] = {
    {{0, 50, 60, 150}, {0, 20, 110, 200}}, {{70, 70, 100, 101}, {5, 6, 90, 100}}, {{0, 1, 2, 3}, {190, 195, 195, 200}},
    {{30, 30, 30, 30}, {0, 0, 0, 0}},      {{0, 50, 60, 120}, {0, 20, 110, 170}},
};

typedef struct outputs {
    uint16_t rows[TENSORS][(TOTAL_Q > TOTAL_K ? TOTAL_Q : TOTAL_K) * HEADS_Q * D];
    float lse[HEADS_Q * TOTAL_Q];
} outputs;

typedef struct memory {
    CUdeviceptr tensors[TENSORS], lse, cu_q, cu_k, workspace;
    size_t workspace_bytes[2]; /* forward, backward */
} memory;

static int rows_of(int tensor)
{
    return is_of_keys[tensor] ? TOTAL_K : TOTAL_Q;
}

static int row_elems(int tensor)
{
    return (is_of_keys[tensor] ? HEADS_KV : HEADS_Q) * D;
}

static size_t bytes_of(int tensor)
{
    return (size_t)rows_of(tensor) * (size_t)row_elems(tensor) * sizeof(uint16_t);
}

static fa2_problem problem_of(fa2_op op)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .op = op,
                         .batch = BATCH,
                         .heads_q = HEADS_Q,
                         .heads_kv = HEADS_KV,
                         .seq_q = LONGEST,
                         .seq_k = LONGEST,
                         .head_dim = D,
                         .causal = 1,
                         .deterministic = op == FA2_OP_BACKWARD,
                         .varlen = 1,
                         .total_q = TOTAL_Q,
                         .total_k = TOTAL_K};
}

static fa2_tensor tensor(const memory *m, int which)
{
    return (fa2_tensor){(void *)m->tensors[which], 0, row_elems(which), D};
}

static void call(fa2_context *context, const memory *m, CUstream stream)
{
    const fa2_problem forward = problem_of(FA2_OP_FORWARD), backward = problem_of(FA2_OP_BACKWARD);
    const int32_t *cu_q = (const int32_t *)m->cu_q, *cu_k = (const int32_t *)m->cu_k;
    const fa2_forward_args forward_args = {.struct_bytes = sizeof(fa2_forward_args),
                                           .q = tensor(m, Q),
                                           .k = tensor(m, K),
                                           .v = tensor(m, V),
                                           .o = tensor(m, O),
                                           .lse = (float *)m->lse,
                                           .workspace = (void *)m->workspace,
                                           .workspace_bytes = m->workspace_bytes[0],
                                           .cu_seqlens_q = cu_q,
                                           .cu_seqlens_k = cu_k};
    const fa2_backward_args backward_args = {.struct_bytes = sizeof(fa2_backward_args),
                                             .q = tensor(m, Q),
                                             .k = tensor(m, K),
                                             .v = tensor(m, V),
                                             .o = tensor(m, O),
                                             .d_o = tensor(m, DO),
                                             .dq = tensor(m, DQ),
                                             .dk = tensor(m, DK),
                                             .dv = tensor(m, DV),
                                             .lse = (const float *)m->lse,
                                             .workspace = (void *)m->workspace,
                                             .workspace_bytes = m->workspace_bytes[1],
                                             .cu_seqlens_q = cu_q,
                                             .cu_seqlens_k = cu_k};
    must_be(fa2_forward(context, &forward, &forward_args, stream) == FA2_OK, "fa2_forward");
    must_be(fa2_backward(context, &backward, &backward_args, stream) == FA2_OK, "fa2_backward");
}

/* Puts numbers into the rows of sequences, and NaN into all other rows and all outputs. */
static void put_all(const memory *m, const struct bounds *b)
{
    uint64_t state = 3;
    static uint16_t rows[sizeof((outputs){0}).rows[0] / sizeof(uint16_t)];
    for (int t = 0; t < TENSORS; t++) {
        const int32_t *own = is_of_keys[t] ? b->k : b->q;
        const int elems = row_elems(t);
        for (int i = 0; i < rows_of(t) * elems; i++) {
            const bool used = t < O && i / elems >= own[0] && i / elems < own[BATCH];
            const float x = (float)(fa2i_random(&state) >> 40) / 0x1p23f - 1;
            rows[i] = used ? fa2i_to_bits(FA2_FP16, x) : 0xffff;
        }
        must_be(cuMemcpyHtoD(m->tensors[t], rows, bytes_of(t)) == CUDA_SUCCESS, "cuMemcpyHtoD");
    }
    must_be(cuMemsetD32Async(m->lse, 0xffffffffu, HEADS_Q * TOTAL_Q, NULL) == CUDA_SUCCESS &&
                cuMemsetD32Async(m->workspace, 0xffffffffu, m->workspace_bytes[1] / 4, NULL) == CUDA_SUCCESS &&
                cuMemcpyHtoD(m->cu_q, b->q, sizeof b->q) == CUDA_SUCCESS &&
                cuMemcpyHtoD(m->cu_k, b->k, sizeof b->k) == CUDA_SUCCESS,
            "the inputs");
}

static void get_all(const memory *m, CUstream stream, outputs *found)
{
    must_be(cuStreamSynchronize(stream) == CUDA_SUCCESS, "the launch");
    for (int t = O; t < TENSORS; t++)
        must_be(cuMemcpyDtoH(found->rows[t], m->tensors[t], bytes_of(t)) == CUDA_SUCCESS, "rows");
    must_be(cuMemcpyDtoH(found->lse, m->lse, sizeof found->lse) == CUDA_SUCCESS, "LSE");
}

static void check_all(const outputs *found, const outputs *wanted, const struct bounds *b)
{
    int wrong = 0;
    for (int t = O; t < TENSORS; t++) {
        const int32_t *own = is_of_keys[t] ? b->k : b->q;
        for (int i = 0; i < rows_of(t) * row_elems(t); i++) {
            const int row = i / row_elems(t);
            const bool used = row >= own[0] && row < own[BATCH];
            wrong += used ? !isfinite(fa2i_from_bits(FA2_FP16, found->rows[t][i])) : found->rows[t][i] != 0;
        }
        CHECK_EQ(memcmp(found->rows[t], wanted->rows[t], bytes_of(t)), 0);
    }
    for (int i = 0; i < HEADS_Q * TOTAL_Q; i++) {
        const int row = i % TOTAL_Q;
        const bool used = row >= b->q[0] && row < b->q[BATCH];
        wrong += used ? isnan(found->lse[i]) : found->lse[i] != -INFINITY;
    }
    CHECK_EQ(wrong, 0);
}

static CUdeviceptr make(size_t bytes)
{
    CUdeviceptr made = 0;
    must_be(cuMemAlloc(&made, bytes) == CUDA_SUCCESS, "memory");
    return made;
}

static CUgraphExec capture(fa2_context *context, const memory *m, CUstream stream)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    must_be(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS, "capture");
    call(context, m, stream);
    must_be(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS &&
                cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS && cuGraphDestroy(graph) == CUDA_SUCCESS,
            "the graph");
    return exec;
}

static memory make_memory(fa2_context *context)
{
    memory m = {.lse = make(HEADS_Q * TOTAL_Q * sizeof(float)),
                .cu_q = make(sizeof bounds[0].q),
                .cu_k = make(sizeof bounds[0].k)};
    for (int op = 0; op < 2; op++) {
        const fa2_problem problem = problem_of(op == 0 ? FA2_OP_FORWARD : FA2_OP_BACKWARD);
        must_be(fa2_workspace_size(context, &problem, &m.workspace_bytes[op]) == FA2_OK, "the workspace");
    }
    if (m.workspace_bytes[1] < m.workspace_bytes[0])
        m.workspace_bytes[1] = m.workspace_bytes[0];
    m.workspace_bytes[1] += 4; /* because it may be 0 */
    m.workspace = make(m.workspace_bytes[1]);
    for (int t = 0; t < TENSORS; t++)
        m.tensors[t] = make(bytes_of(t));
    return m;
}

static void unmake_memory(const memory *m)
{
    for (int t = 0; t < TENSORS; t++)
        must_be(cuMemFree(m->tensors[t]) == CUDA_SUCCESS, "memory");
    must_be(cuMemFree(m->lse) == CUDA_SUCCESS && cuMemFree(m->cu_q) == CUDA_SUCCESS &&
                cuMemFree(m->cu_k) == CUDA_SUCCESS && cuMemFree(m->workspace) == CUDA_SUCCESS,
            "memory");
}

int main(void)
{
    static outputs found, wanted;
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = "", .device_plus_one = 1};
    fa2_context *context = NULL;
    CUstream stream = NULL;
    CUcontext current = NULL;
    CUdevice device = 0;
    must_be(cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
                cuDevicePrimaryCtxRetain(&current, device) == CUDA_SUCCESS &&
                cuCtxPushCurrent(current) == CUDA_SUCCESS && cuStreamCreate(&stream, 0) == CUDA_SUCCESS &&
                fa2_context_create(&config, &context) == FA2_OK,
            "the context");
    const memory m = make_memory(context);
    put_all(&m, &bounds[0]);
    CUgraphExec graph = capture(context, &m, stream);
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        put_all(&m, &bounds[i]);
        must_be(cuGraphLaunch(graph, stream) == CUDA_SUCCESS, "the graph");
        get_all(&m, stream, &found);
        put_all(&m, &bounds[i]);
        call(context, &m, stream);
        get_all(&m, stream, &wanted);
        check_all(&found, &wanted, &bounds[i]);
    }
    must_be(cuGraphExecDestroy(graph) == CUDA_SUCCESS, "the graph");
    unmake_memory(&m);
    fa2_context_destroy(context);
    return check_done();
}
