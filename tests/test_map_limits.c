/*
 * The strides that tensor maps can express. At 2^40 bytes, in each operand with a map, a call gets a kernel without
 * maps; one step below it does not. Neither a map nor a message is attempted.
 */
#include "unmapped_fixture.h"

static const char said[] = "context is NULL";

static fa2_context *begin(void)
{
    setenv("FA2_SHARE", "", 1); /* ignore results installed on this machine */
    fa2_context *context = create_with((fa2_config){.struct_bytes = sizeof(fa2_config), .database = ""});
    CHECK_EQ(fa2_prepare(NULL, NULL), FA2_E_INVALID);
    CHECK_STR(fa2_last_message(), said);
    return context;
}

static void end(fa2_context *context)
{
    fa2_context_destroy(context);
    CHECK_EQ(fake_live(), 0);
}

/* Checks a call of either operation. It must launch this kernel, which reads maps unless it is for sm_80. */
static void check_call(fa2_context *context, const fa2_problem *p, const void *args, const char *function,
                       const char *what)
{
    const bool maps = strstr(function, "sm80") == NULL;
    const long encoded = fake.map_count;
    fake_trace_clear();
    const fa2_status st =
        p->op == FA2_OP_FORWARD ? fa2_forward(context, p, args, NULL) : fa2_backward(context, p, args, NULL);
    CHECK_EQ(st, FA2_OK);
    CHECK_CONTAINS(last_function(), function);
    CHECK_STR(fa2_last_message(), said);
    CHECK(maps || fake_traced("tensor_map_encode_tiled") == 0);
    if (st != FA2_OK || strstr(last_function(), function) == NULL)
        printf("%s: %s, %ld maps\n", what, last_function(), fake.map_count - encoded);
}

/* Checks each stride of an operand in turn: if a map limits it, and if not. */
static void check_strides(fa2_context *context, const fa2_problem *p, const void *args, fa2_tensor *operand,
                          const char *name, const char *by_maps, const char *beyond)
{
    const fa2_tensor usual = *operand;
    int64_t *const strides[] = {&operand->stride_batch, &operand->stride_seq, &operand->stride_head};
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        *strides[i] = FAR_ELEMS - 8;
        check_call(context, p, args, by_maps, name);
        *strides[i] = FAR_ELEMS;
        check_call(context, p, args, beyond, name);
        check_call(context, p, args, beyond, name);
        *operand = usual;
        check_call(context, p, args, by_maps, name);
    }
}

static fa2_forward_args forward_args(const fa2_problem *p)
{
    return (fa2_forward_args){.struct_bytes = sizeof(fa2_forward_args),
                              .q = tensor_at(1, p->seq_q, p->heads_q, p->head_dim),
                              .k = tensor_at(2, p->seq_k, p->heads_kv, p->head_dim),
                              .v = tensor_at(3, p->seq_k, p->heads_kv, p->head_dim),
                              .o = tensor_at(4, p->seq_q, p->heads_q, p->head_dim)};
}

static void test_forward(void)
{
    const fa2_problem p = tuned_problem(4, 1024);
    fa2_forward_args args = forward_args(&p);
    fa2_context *context = begin();
    check_call(context, &p, &args, "fwd_sm90", "at first");
    CHECK_EQ(fake.map_count, 4);
    CHECK_EQ(fake.maps[3].address, (uintptr_t)args.o.data); /* some kernels have no map of O */
    check_strides(context, &p, &args, &args.q, "q", "fwd_sm90", "fwd_sm80");
    check_strides(context, &p, &args, &args.k, "k", "fwd_sm90", "fwd_sm80");
    check_strides(context, &p, &args, &args.v, "v", "fwd_sm90", "fwd_sm80");
    check_strides(context, &p, &args, &args.o, "o", "fwd_sm90", "fwd_sm80");
    end(context);
}

/* A stride that is never used may have any value. */
static void test_unused_strides(void)
{
    fa2_problem p = tuned_problem(1, 1024);
    fa2_forward_args args = forward_args(&p);
    fa2_context *context = begin();
    p.heads_kv = 1;
    args.q.stride_batch = args.o.stride_batch = FAR_ELEMS;
    args.k.stride_head = args.v.stride_head = -1;
    check_call(context, &p, &args, "fwd_sm90", "unused");
    args.k.stride_seq = FAR_ELEMS;
    check_call(context, &p, &args, "fwd_sm80", "unused, and another");
    end(context);
}

/* A bias with a map has these limits, too. A bias without one has none. */
static void test_bias(void)
{
    static const struct {
        int64_t batch, head, query;
        const char *function;
    } cases[] = {{0, 0, 1024, "fwd_sm90"},         {FAR_ELEMS - 8, 0, 1024, "fwd_sm90"},
                 {FAR_ELEMS, 0, 1024, "fwd_sm80"}, {0, FAR_ELEMS - 8, 1024, "fwd_sm90"},
                 {0, FAR_ELEMS, 1024, "fwd_sm80"}, {0, 0, FAR_ELEMS - 8, "fwd_sm90"},
                 {0, 0, FAR_ELEMS, "fwd_sm80"},    {0, 0, FAR_ELEMS + 2, "fwd_sm90"}, /* in pairs */
                 {0, FAR_ELEMS, 0, "fwd_sm90"},                                       /* one row for all queries */
                 {0, FAR_ELEMS, 1025, "fwd_sm80"}};                                   /* number by number */
    fa2_problem p = tuned_problem(4, 1024);
    fa2_forward_args args = forward_args(&p);
    fa2_context *context = begin();
    p.bias = FA2_BIAS_BF16;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        args.bias = (fa2_bias_tensor){.data = place(5),
                                      .stride_batch = cases[i].batch,
                                      .stride_head = cases[i].head,
                                      .stride_query = cases[i].query,
                                      .stride_key = 1};
        check_call(context, &p, &args, cases[i].function, "bias");
        if (i == 0)
            CHECK_EQ(fake.maps[fake.map_count - 1].address, (uintptr_t)args.bias.data);
    }
    end(context);
}

/* Among backward's operands, q, k, v and d_o have maps. */
static void test_backward(void)
{
    const fa2_problem p = {.struct_bytes = sizeof(fa2_problem),
                           .op = FA2_OP_BACKWARD,
                           .batch = 2,
                           .heads_q = 16,
                           .heads_kv = 8,
                           .seq_q = 1024,
                           .seq_k = 1024,
                           .head_dim = 128,
                           .causal = 1};
    fa2_backward_args args = {.struct_bytes = sizeof(fa2_backward_args),
                              .q = tensor_at(1, p.seq_q, p.heads_q, p.head_dim),
                              .k = tensor_at(2, p.seq_k, p.heads_kv, p.head_dim),
                              .v = tensor_at(3, p.seq_k, p.heads_kv, p.head_dim),
                              .o = tensor_at(4, p.seq_q, p.heads_q, p.head_dim),
                              .d_o = tensor_at(5, p.seq_q, p.heads_q, p.head_dim),
                              .dq = tensor_at(6, p.seq_q, p.heads_q, p.head_dim),
                              .dk = tensor_at(7, p.seq_k, p.heads_kv, p.head_dim),
                              .dv = tensor_at(8, p.seq_k, p.heads_kv, p.head_dim),
                              .lse = place(9),
                              .workspace = place(10)};
    fa2_context *context = begin();
    CHECK_EQ(fa2_workspace_size(context, &p, &args.workspace_bytes), FA2_OK);
    check_strides(context, &p, &args, &args.q, "q", "bwd_sm90", "bwd_sm80");
    check_strides(context, &p, &args, &args.k, "k", "bwd_sm90", "bwd_sm80");
    check_strides(context, &p, &args, &args.v, "v", "bwd_sm90", "bwd_sm80");
    check_strides(context, &p, &args, &args.d_o, "d_o", "bwd_sm90", "bwd_sm80");
    check_strides(context, &p, &args, &args.o, "o", "bwd_sm90", "bwd_sm90");
    check_strides(context, &p, &args, &args.dq, "dq", "bwd_sm90", "bwd_sm90");
    end(context);
}

int main(void)
{
    test_forward();
    test_unused_strides();
    test_bias();
    test_backward();
    return check_done();
}
