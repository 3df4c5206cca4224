/*
 * A program that was built with an older fa2.h (older_header.cmake), as a function of test_struct_sizes.c.
 */
#include "older_program.h"

#include <stdint.h>
#include "check.h"
#include "fa2.h"

static void *at(uintptr_t number) /* nothing is read or written */
{
    return (void *)(number << 36);
}

static void call_forward(fa2_context *context, fa2_problem problem)
{
    const fa2_tensor tensor = {.data = NULL, .stride_batch = 1 << 20, .stride_seq = 256, .stride_head = 64};
    fa2_tensor t[4] = {tensor, tensor, tensor, tensor};
    size_t bytes = 0;
    for (uintptr_t i = 0; i < 4; i++)
        t[i].data = at(i + 1);
    CHECK_EQ(fa2_workspace_size(context, &problem, &bytes), FA2_OK);
    const fa2_forward_args args = {.struct_bytes = sizeof args,
                                   .q = t[0],
                                   .k = t[1],
                                   .v = t[2],
                                   .o = t[3],
                                   .workspace = at(5),
                                   .workspace_bytes = bytes};
    CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_OK);
    CHECK_EQ(fa2_forward(context, &problem, &args, NULL), FA2_OK); /* prepared */
}

static void call_backward(fa2_context *context, fa2_problem problem)
{
    fa2_tensor t[8];
    size_t bytes = 0;
    problem.op = FA2_OP_BACKWARD;
    for (uintptr_t i = 0; i < 8; i++)
        t[i] = (fa2_tensor){.data = at(i + 1), .stride_batch = 1 << 20, .stride_seq = 256, .stride_head = 64};
    CHECK_EQ(fa2_workspace_size(context, &problem, &bytes), FA2_OK);
    const fa2_backward_args args = {.struct_bytes = sizeof args,
                                    .q = t[0],
                                    .k = t[1],
                                    .v = t[2],
                                    .o = t[3],
                                    .d_o = t[4],
                                    .dq = t[5],
                                    .dk = t[6],
                                    .dv = t[7],
                                    .lse = at(9),
                                    .workspace = at(10),
                                    .workspace_bytes = bytes};
    CHECK_EQ(fa2_backward(context, &problem, &args, NULL), FA2_OK);
}

static void explain(fa2_context *context, const fa2_problem *problem)
{
    fa2_explanation e = {.struct_bytes = sizeof e};
    CHECK_EQ(fa2_explain(context, problem, &e), FA2_OK);
    CHECK_EQ(e.struct_bytes, sizeof e);
    CHECK_EQ(e.tuned_problem.head_dim, problem->head_dim);
    CHECK_STR(e.target, "sm_86");
    CHECK(e.reason[0] != '\0');
}

int older_program(older_sizes *ret_sizes)
{
    const fa2_problem problem = {.struct_bytes = sizeof problem,
                                 .batch = 2,
                                 .heads_q = 4,
                                 .heads_kv = 4,
                                 .seq_q = 512,
                                 .seq_k = 512,
                                 .head_dim = 64};
    const fa2_config config = {.struct_bytes = sizeof config, .database = ""};
    fa2_context *context = NULL;
    *ret_sizes =
        (older_sizes){sizeof config, sizeof(fa2_forward_args), sizeof(fa2_backward_args), sizeof(fa2_explanation)};
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_EQ(fa2_prepare(context, &problem), FA2_OK);
    call_forward(context, problem);
    call_backward(context, problem);
    explain(context, &problem);
    fa2_context_destroy(context);
    return check_failures;
}
