/*
 * Valid arguments of forward, for tests that make them invalid.
 */
#pragma once

#include "check.h"
#include "runtime/base/problem.h"
#include "runtime/ops/op.h"
#include "good_args.h" /* last, because parameters named `problem` would shadow its variable */

static const fa2i_grid plain_grid = {.blocks = {32}, .splits = 1};
static const fa2i_grid split_grid = {.blocks = {32, 4}, .splits = 2, .workspace_bytes = 1024, .partial_bytes = 512};

static inline fa2_status check_args(const fa2_problem *of, const fa2_forward_args *args, const fa2i_grid *grid)
{
    return fa2i_op_of(of)->check_args(of, args, grid);
}

/* Checks arguments with a plan and without one. */
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
