/*
 * Arguments of forward that are right, to be made wrong: what the tests of arguments share.
 */
#ifndef FA2_TESTS_ARGS_FIXTURE_H
#define FA2_TESTS_ARGS_FIXTURE_H

#include "check.h"
#include "runtime/base/problem.h"
#include "runtime/ops/op.h"

static const fa2_problem problem = {
    .batch = 2, .heads_q = 8, .heads_kv = 2, .seq_q = 100, .seq_k = 200, .head_dim = 64};
static const fa2i_grid plain_grid = {.blocks = {32}, .splits = 1};
static const fa2i_grid split_grid = {
    .blocks = {32, 4}, .splits = 2, .workspace_bytes = 1024, .partial_bytes = 512};

/* [B, S, H, D], at addresses that nothing reads. */
static inline fa2_forward_args good_args(void)
{
    const int64_t d = problem.head_dim;
    const int64_t q_row = d * problem.heads_q, kv_row = d * problem.heads_kv;
    const fa2_tensor q = {(void *)0x1000000, q_row * problem.seq_q, q_row, d};
    const fa2_tensor k = {(void *)0x2000000, kv_row * problem.seq_k, kv_row, d};
    fa2_forward_args args = {.q = q, .k = k, .v = k, .o = q};
    args.v.data = (void *)0x3000000;
    args.o.data = (void *)0x4000000;
    return args;
}

static inline fa2_status check_args(const fa2_problem *of, const fa2_forward_args *args,
                                    const fa2i_grid *grid)
{
    return fa2i_op_of(of)->check_args(of, args, grid);
}

/* Good or bad with a plan and without one. */
static inline void check_good(const fa2_problem *of, const fa2_forward_args *args)
{
    CHECK_EQ(check_args(of, args, NULL), FA2_OK);
    CHECK_EQ(check_args(of, args, &plain_grid), FA2_OK);
    if (check_args(of, args, NULL) != FA2_OK)
        fprintf(stderr, "%s\n", fa2_last_message());
}

static inline void check_bad(const fa2_forward_args *args, const char *said)
{
    CHECK_EQ(check_args(&problem, args, NULL), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), said);
    CHECK_EQ(check_args(&problem, args, &plain_grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), said);
}

#endif
