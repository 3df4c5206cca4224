/*
 * Calls with strides that no tensor map can express, on a card whose kernels read by maps. A kernel without maps serves
 * them. The problem's fa2_workspace_size is enough for both kernels.
 */
#include <limits.h>
#include "runtime/base/alloc.h"
#include "unmapped_fixture.h"

/* Calls backward. far: K has such strides. */
static fa2_status call(fa2_context *context, const fa2_problem *p, bool far, size_t workspace_bytes)
{
    static const int32_t lengths[9];
    const int32_t q_rows = p->varlen ? p->total_q : p->seq_q;
    const int32_t k_rows = p->varlen ? p->total_k : p->seq_k;
    const int32_t d = p->head_dim;
    const fa2_tensor q = tensor_at(1, q_rows, p->heads_q, d);
    fa2_tensor k = tensor_at(2, k_rows, p->heads_kv, d);
    void *const workspace = workspace_bytes > 0 ? place(9) : NULL;
    if (far) /* packed sequences are one batch: its rows lie far apart */
        *(p->varlen ? &k.stride_seq : &k.stride_batch) = FAR_ELEMS;
    const fa2_backward_args args = {.struct_bytes = sizeof(fa2_backward_args),
                                    .q = q,
                                    .k = k,
                                    .v = tensor_at(3, k_rows, p->heads_kv, d),
                                    .o = tensor_at(4, q_rows, p->heads_q, d),
                                    .d_o = tensor_at(5, q_rows, p->heads_q, d),
                                    .dq = tensor_at(6, q_rows, p->heads_q, d),
                                    .dk = tensor_at(7, k_rows, p->heads_kv, d),
                                    .dv = tensor_at(8, k_rows, p->heads_kv, d),
                                    .lse = place(10),
                                    .sinks = p->sinks ? place(11) : NULL,
                                    .cu_seqlens_q = p->varlen ? lengths : NULL,
                                    .cu_seqlens_k = p->varlen ? lengths : NULL,
                                    .softcap = p->softcap ? 30.0f : 0,
                                    .workspace = workspace,
                                    .workspace_bytes = workspace_bytes};
    return fa2_backward(context, p, &args, NULL);
}

static fa2_context *create(void)
{
    return create_with((fa2_config){.struct_bytes = sizeof(fa2_config), .database = ""});
}

/* Strides that no tensor map can express: a kernel without maps serves this call and the next. The call does not fail,
 * so the last message stays. A database without code is no failure either. */
static void one_after_the_other(const char *database)
{
    const fa2_problem problem = tuned_problem(4, 4096);
    const fa2_tensor tensor = tensor_at(1, 4096, 8, 64);
    fa2_forward_args args = {.struct_bytes = sizeof(fa2_forward_args),
                             .q = tensor,
                             .k = tensor,
                             .v = tensor,
                             .o = tensor_at(2, 4096, 8, 64)};
    (void)fa2_prepare(NULL, &problem);
    fa2_context *context = create_with((fa2_config){.struct_bytes = sizeof(fa2_config), .database = database});
    CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_OK);
    CHECK_STR(fake.launches[0].function, "fwd_sm90");
    CHECK_STR(fa2_last_message(), "context is NULL");
    args.k.stride_batch = args.v.stride_head = 0;
    CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_OK);
    CHECK_STR(fake.launches[1].function, "fwd_sm90");
    const long compiled = fake.compile_count;
    args.k.stride_batch = FAR_ELEMS;
    for (int call = 2; call < 4; call++) {
        CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_OK);
        CHECK_STR(fa2_last_message(), call == 2 ? "context is NULL" : "problem is NULL");
        CHECK_EQ(fa2_forward(context, NULL, NULL, NULL), FA2_E_INVALID);
        CHECK_STR(fake.launches[call].function, "fwd_sm80");
        CHECK_EQ(fake.launches[call].params.k_stride[0], args.k.stride_batch);
        CHECK_EQ(fake.compile_count, compiled + 1);
    }
    args.k.stride_batch = FAR_ELEMS - 8;
    CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_OK);
    CHECK_STR(fake.launches[4].function, "fwd_sm90");
    fa2_explanation e = {.struct_bytes = sizeof e};
    CHECK_EQ(fa2_explain(context, &problem, &e), FA2_OK);
    CHECK_CONTAINS(e.variant, "fwd_sm90 ");
    CHECK_STR(fa2_last_message(), "problem is NULL");
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
}

static void test_one_after_the_other(void)
{
    tuned_database database;
    tuned_begin(&database);
    one_after_the_other("");
    one_after_the_other(database.path);
    tuned_end(&database);
}

/* A bias that a kernel with maps would copy number by number also gets the other kernel. */
static void test_scattered_bias(void)
{
    fa2_problem problem = tuned_problem(4, 4096);
    const fa2_tensor tensor = tensor_at(1, 4096, 8, 64);
    fa2_forward_args args = {.struct_bytes = sizeof(fa2_forward_args),
                             .q = tensor,
                             .k = tensor,
                             .v = tensor,
                             .o = tensor_at(2, 4096, 8, 64)};
    tuned_database database;
    tuned_begin(&database);
    (void)fa2_prepare(NULL, &problem);
    fa2_context *context = create_with((fa2_config){.struct_bytes = sizeof(fa2_config), .database = database.path});
    problem.bias = FA2_BIAS_BF16;
    args.bias = (fa2_bias_tensor){.data = place(3), .stride_query = 4096, .stride_key = 1};
    static const struct {
        int64_t query, key;
        const char *function;
    } cases[] = {{4096, 1, "fwd_sm90"}, {4098, 1, "fwd_sm90"}, {0, 1, "fwd_sm90"},
                 {4097, 1, "fwd_sm80"}, {1, 4096, "fwd_sm80"}, {4104, 1, "fwd_sm90"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        args.bias.stride_query = cases[i].query;
        args.bias.stride_key = cases[i].key;
        CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_OK);
        CHECK_STR(fake.launches[i].function, cases[i].function);
        CHECK_STR(fa2_last_message(), "context is NULL");
    }
    fa2_context_destroy(context);
    tuned_end(&database);
    CHECK_EQ(fake_live(), 0);
}

static fa2_status forward(fa2_context *context, const fa2_problem *problem, int64_t stride_batch, int64_t stride_query,
                          CUstream stream)
{
    const int32_t seq = problem->seq_q;
    const fa2_tensor tensor = tensor_at(1, seq, 8, 64);
    fa2_forward_args args = {.struct_bytes = sizeof(fa2_forward_args),
                             .q = tensor,
                             .k = tensor,
                             .v = tensor,
                             .o = tensor_at(2, seq, 8, 64),
                             .bias = {.data = place(3), .stride_query = stride_query, .stride_key = 1}};
    args.k.stride_batch = stride_batch;
    return fa2_forward(context, problem, &args, stream);
}

/* Calls with a bias whose queries are this far apart: 4096 can be mapped, 4097 cannot. */
static fa2_status call_biased(fa2_context *context, int32_t seq, int64_t stride_query)
{
    fa2_problem problem = tuned_problem(4, seq);
    problem.bias = FA2_BIAS_BF16;
    const long launched = fake.launch_count;
    const fa2_status st = forward(context, &problem, (int64_t)seq * 512, stride_query, NULL);
    CHECK_EQ(fake.launch_count, launched + (st == FA2_OK));
    return st;
}

/* If there is no other kernel, the mapped one serves. This is logged once, and asked once. The call does not fail, so
 * the last message stays. */
static void test_scattered_without(void)
{
    tuned_database database;
    tuned_log log = {.count = 0};
    tuned_begin(&database);
    fa2_context *context = create_with((fa2_config){.struct_bytes = sizeof(fa2_config), .database = database.path});
    CHECK_EQ(call_biased(context, 4096, 4096), FA2_OK);
    CHECK_EQ(call_biased(context, 2048, 4096), FA2_OK);
    fa2_context_destroy(context);
    context = create_with((fa2_config){.struct_bytes = sizeof(fa2_config),
                                       .database = database.path,
                                       .never_compile = 1,
                                       .log = tuned_log_add,
                                       .log_user = &log});
    CHECK_EQ(call_biased(context, 4096, 4096), FA2_OK);
    CHECK_EQ(call_biased(context, 2048, 4096), FA2_OK);
    CHECK_EQ(fa2_forward(context, NULL, NULL, NULL), FA2_E_INVALID);
    const int told = log.count;
    for (int again = 0; again < 3; again++) {
        (void)fa2i_alloc_fail_at(again == 0 ? 0 : LONG_MAX);
        CHECK_EQ(call_biased(context, 4096, 4097), FA2_OK);
        CHECK((fa2i_alloc_fail_at(0) == 0) == (again > 0)); /* asking again allocates */
        CHECK_STR(last_function(), "fwd_sm90");
        CHECK_STR(fa2_last_message(), "problem is NULL");
        CHECK_EQ(log.count, told + 1);
    }
    CHECK_CONTAINS(log.text, "a bias without aligned neighbours is read number by number");
    CHECK_CONTAINS(log.text, "the context's config forbids compiling");
    CHECK_EQ(call_biased(context, 2048, 4097), FA2_OK); /* another shape of the class */
    CHECK_STR(last_function(), "fwd_sm90");
    CHECK_EQ(log.count, told + 1);
    CHECK_EQ(fake.compile_count, 0);
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
    tuned_end(&database);
}

/* After a failure for lack of memory it asks again. An error of the other kernel's launch fails the call. */
static void test_scattered_faults(void)
{
    enum { LAST = 40 }; /* allocations of a call, without Lua's, which recovers from a failed one */
    fa2_context *context = create();
    CHECK_EQ(call_biased(context, 4096, 4096), FA2_OK);
    (void)fa2i_alloc_fail_at(0);
    CHECK_EQ(call_biased(context, 4096, 4097), FA2_OK);
    const long requests = fa2i_alloc_fail_at(0);
    bool declined = false;
    for (long nth = requests; nth > requests - LAST && nth > 0 && !declined; nth--) {
        fa2_context_destroy(context);
        context = create();
        CHECK_EQ(call_biased(context, 4096, 4096), FA2_OK);
        (void)fa2i_alloc_fail_at(nth);
        CHECK_EQ(call_biased(context, 4096, 4097), FA2_OK);
        (void)fa2i_alloc_fail_at(0);
        declined = strcmp(last_function(), "fwd_sm90") == 0;
    }
    CHECK(declined);
    CHECK_EQ(call_biased(context, 4096, 4097), FA2_OK);
    CHECK_STR(last_function(), "fwd_sm80");
    fake_trace_clear();
    CHECK_EQ(call_biased(context, 4096, 4097), FA2_OK);
    (void)fake_fail_driver(fake_traced("launch_kernel"), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_EQ(call_biased(context, 4096, 4097), FA2_E_CUDA);
    CHECK_CONTAINS(fa2_last_message(), "cuLaunchKernel");
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
}

/* While a stream is captured, nothing is prepared: such strides fail the call, and such a bias is read slowly. If the
 * other kernel is already loaded, it is captured. */
static void test_capture(void)
{
    static const char *const functions[] = {"fwd_sm90", "fwd_sm90", "fwd_sm80", "fwd_sm80"};
    const int64_t near = 4096 * 512;
    fa2_problem problem = tuned_problem(4, 4096);
    const fa2i_cuda_table *cuda = NULL;
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    fa2_context *context = create();
    CUcontext own = fake_context_push(0);
    problem.bias = FA2_BIAS_BF16;
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_OK);
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    CHECK_EQ(cuda->stream_create(&stream, 0), CUDA_SUCCESS);
    CHECK_EQ(cuda->stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    CHECK_EQ(forward(context, &problem, near, 4096, stream), FA2_OK);
    CHECK_EQ(forward(context, &problem, FAR_ELEMS, 4096, stream), FA2_E_CAPTURE);
    CHECK_CONTAINS(fa2_last_message(), "the stream is being captured");
    CHECK_EQ(fa2_prepare(context, NULL), FA2_E_INVALID);
    CHECK_EQ(forward(context, &problem, near, 4097, stream), FA2_OK);
    CHECK_STR(fa2_last_message(), "problem is NULL");
    CHECK_EQ(cuda->stream_end_capture(stream, &graph), CUDA_SUCCESS); /* the capture is intact */
    CHECK_EQ(cuda->graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
    CHECK_EQ(cuda->graph_launch(exec, stream), CUDA_SUCCESS);
    CHECK_EQ(cuda->graph_exec_destroy(exec), CUDA_SUCCESS);
    CHECK_EQ(cuda->graph_destroy(graph), CUDA_SUCCESS);

    const long compiled = fake.compile_count;
    CHECK_EQ(forward(context, &problem, FAR_ELEMS, 4096, NULL), FA2_OK);
    CHECK_EQ(cuda->stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    CHECK_EQ(forward(context, &problem, near, 4097, stream), FA2_OK);
    CHECK_EQ(cuda->stream_end_capture(stream, &graph), CUDA_SUCCESS);
    CHECK_EQ(cuda->graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
    CHECK_EQ(cuda->graph_launch(exec, stream), CUDA_SUCCESS);
    CHECK_EQ(fake.compile_count, compiled + 1);
    CHECK_EQ(fake.launch_count, 4);
    for (int i = 0; i < 4; i++)
        CHECK_STR(fake.launches[i].function, functions[i]);
    CHECK_EQ(cuda->graph_exec_destroy(exec), CUDA_SUCCESS);
    CHECK_EQ(cuda->graph_destroy(graph), CUDA_SUCCESS);
    CHECK_EQ(cuda->stream_destroy(stream), CUDA_SUCCESS);
    fake_context_pop(own);
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
}

/* If there is no other kernel, such strides fail every call, even after a bias was served without one. Only the status
 * says so. Strides that can be mapped are served. */
static void test_strides_without(void)
{
    tuned_database database;
    tuned_log log = {.count = 0};
    fa2_problem problem = tuned_problem(4, 4096);
    const int64_t near = 4096 * 512;
    problem.bias = FA2_BIAS_BF16;
    tuned_begin(&database);
    fa2_context *context = create_with((fa2_config){.struct_bytes = sizeof(fa2_config), .database = database.path});
    CHECK_EQ(forward(context, &problem, near, 4096, NULL), FA2_OK);
    fa2_context_destroy(context);
    context = create_with((fa2_config){.struct_bytes = sizeof(fa2_config),
                                       .database = database.path,
                                       .never_compile = 1,
                                       .log = tuned_log_add,
                                       .log_user = &log});
    CHECK_EQ(forward(context, &problem, near, 4096, NULL), FA2_OK);
    const long encoded = fake.map_count;
    const int told = log.count;
    for (int again = 0; again < 2; again++) {
        for (int64_t query = 4096; query <= 4097; query++) {
            CHECK_EQ(forward(context, &problem, FAR_ELEMS, query, NULL), FA2_E_FORBIDDEN);
            CHECK_CONTAINS(fa2_last_message(), "the context's config forbids compiling");
        }
        CHECK_EQ(fake.launch_count, again + 1);
        CHECK_EQ(log.count, told + again);
        CHECK_EQ(forward(context, &problem, near, 4097, NULL), FA2_OK); /* logged once */
        CHECK_EQ(log.count, told + 1);
    }
    CHECK_EQ(fake.map_count, encoded);
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
    tuned_end(&database);
}

/* If the driver refuses a map anyway, the call fails. The other kernel is not used. */
static void test_refused_map(void)
{
    const fa2_problem problem = tuned_problem(4, 4096);
    fa2_context *context = create();
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    fake_trace_clear();
    CHECK_EQ(forward(context, &problem, 4096 * 512, 0, NULL), FA2_OK);
    const long first = fake_traced("tensor_map_encode_tiled");
    CHECK(first > 0);
    const long compiled = fake.compile_count;
    (void)fake_fail_driver(first, CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(forward(context, &problem, 4096 * 512 + 8, 0, NULL), FA2_E_CUDA);
    CHECK_CONTAINS(fa2_last_message(), "a tensor map of k: cuTensorMapEncodeTiled: ");
    CHECK_EQ(fake.launch_count, 1);
    CHECK_EQ(forward(context, &problem, 4096 * 512 + 8, 0, NULL), FA2_OK);
    CHECK_STR(last_function(), "fwd_sm90");
    CHECK_EQ(fake.compile_count, compiled);
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
}

#define GRADIENTS                                                                                                      \
    .struct_bytes = sizeof(fa2_problem), .op = FA2_OP_BACKWARD, .batch = 2, .heads_q = 16, .heads_kv = 8,              \
    .seq_q = 4096, .seq_k = 4096

/* The problem's own workspace is exactly large enough for both kernels. */
static void test_workspace(void)
{
    static const fa2_problem problems[] = {
        {GRADIENTS, .head_dim = 128, .causal = 1},
        {GRADIENTS, .head_dim = 64, .sinks = 1},
        {GRADIENTS, .head_dim = 80, .softcap = 1, .sinks = 1},
        {GRADIENTS, .head_dim = 128, .deterministic = 1, .sinks = 1},
        {GRADIENTS, .head_dim = 64, .causal = 1, .varlen = 1, .total_q = 7001, .total_k = 7001, .sinks = 1},
    };
    fa2_context *context = create();
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        size_t bytes = 0, again = 0;
        CHECK_EQ(fa2_workspace_size(context, &problems[i], &bytes), FA2_OK);
        CHECK_EQ(call(context, &problems[i], false, bytes), FA2_OK);
        CHECK_CONTAINS(fake.launches[fake.launch_count - 1].function, "bwd_sm90");
        const fa2_status st = call(context, &problems[i], true, bytes);
        CHECK_EQ(st, FA2_OK);
        if (st != FA2_OK)
            printf("problem %zu: %s\n", i, fa2_last_message());
        CHECK_CONTAINS(fake.launches[fake.launch_count - 1].function, "bwd_sm80");
        CHECK_EQ(fa2_workspace_size(context, &problems[i], &again), FA2_OK);
        CHECK_EQ(again, bytes);
    }
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
}

/* Several lengths in turn: a kernel whose row tile fits one problem's workspace may not fit the next one's. */
static void test_lengths(void)
{
    static const int32_t lengths[] = {4096, 3850, 3841, 4090};
    for (size_t first = 0; first < 2; first++) {
        fa2_context *context = create();
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            fa2_problem problem = {GRADIENTS, .head_dim = 128, .deterministic = first == 1};
            problem.seq_q = lengths[first == 0 ? i : 3 - i];
            size_t bytes = 0;
            CHECK_EQ(fa2_workspace_size(context, &problem, &bytes), FA2_OK);
            const fa2_status st = call(context, &problem, true, bytes);
            CHECK_EQ(st, FA2_OK);
            if (st != FA2_OK)
                printf("%d queries: %s\n", problem.seq_q, fa2_last_message());
        }
        fa2_context_destroy(context);
        CHECK_EQ(fake_live(), 0);
    }
}

int main(void)
{
    test_one_after_the_other();
    test_scattered_bias();
    test_scattered_without();
    test_scattered_faults();
    test_capture();
    test_strides_without();
    test_refused_map();
    test_workspace();
    test_lengths();
    return check_done();
}
