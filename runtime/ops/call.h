/*
 * The common part of all operations' calls: factors of scores, window and workspace.
 *
 * Pure functions; thread-safe. Errors: FA2_E_INVALID naming argument and limit.
 */
#pragma once

#include <float.h>
#include "runtime/base/record.h"
#include "runtime/ops/memory.h"

enum { FA2I_WORKSPACE_ALIGN_BYTES = 256 };

/* Returns the bytes of an element of O, or of a gradient. */
static inline int32_t fa2i_out_bytes(const fa2_problem *problem)
{
    return problem->partial != FA2_PARTIAL_NONE ? (int32_t)sizeof(float) : fa2i_elem_bytes(problem->dtype);
}

/* Returns the bytes that such an element moves: those that are merged are read, too. */
static inline int32_t fa2i_out_traffic(const fa2_problem *problem)
{
    return fa2i_out_bytes(problem) * (problem->partial == FA2_PARTIAL_MERGE ? 2 : 1) +
           (problem->carry ? (int32_t)sizeof(float) : 0);
}

/* Returns whether forward merges LSE with what is in memory. */
static inline bool fa2i_merges_lse(const fa2_problem *problem)
{
    return problem->partial == FA2_PARTIAL_MERGE || problem->carry;
}

/* The scale times log2(e) must be a float, too. */
#define FA2I_SCALE_MAX ((float)(FLT_MAX * 0.69))

/* The numbers of a call that change scores (factors.def). 0 if the problem does not have one, or its default is
 * wanted. */
typedef struct fa2i_factors {
#define FA2I_FACTOR(member, ...) float member;
#include "runtime/base/factors.def"
} fa2i_factors;

/* args: the argument struct of the operation, forward or backward. Factors that the problem does not have are not
 * read. */
fa2i_factors fa2i_factors_of(const fa2_problem *problem, const void *args);
void fa2i_factors_put(fa2_op op, void *args, const fa2i_factors *factors);

/* Sets the problem's fields for the factors that are not 0. */
void fa2i_factors_ask(const fa2i_factors *factors, fa2_problem *problem);

/* Returns the factors without those that the problem does not have. */
fa2i_factors fa2i_factors_asked(const fa2_problem *problem, fa2i_factors factors);

/* Returns the cap of scores; 0: none. */
double fa2i_cap_of(const fa2i_factors *factors);

/* Returns the softmax scale of a call; 0 means the default. */
double fa2i_softmax_scale(const fa2_problem *problem, float softmax_scale);

/* The scales of scores in a call, from its factors. */
typedef struct fa2i_scales {
    /* The factor of Q K^T. Where numbers of bf16 are added to scores, this is the nearest number to the call's scale
     * whose inverse is the sum of two such numbers, at most 2^-17 of it away. So products with these two are a bias
     * exactly (templates/hopper/bias_tiles.cuh), and only products of Q and K are off by so little. */
    double softmax;
    double exponent;    /* of scores in the exponent: the cap, or softmax without one */
    float softcap_rate; /* softmax / cap; 0 without a cap */
} fa2i_scales;

/* args: the argument struct of the problem's operation. */
fa2_status fa2i_scales_check(const fa2_problem *problem, const void *args);
fa2i_scales fa2i_scales_of(const fa2_problem *problem, const void *args); /* the arguments were checked */

/* An unbounded end of a window, for kernels: more than any length, with room to add one. */
enum { FA2I_WINDOW_UNBOUNDED = 1 << 30 };

/* Returns how many keys before (after) its own position a query sees, in the form that kernels use, also without a
 * window. */
int32_t fa2i_window_left(const fa2_problem *problem);
int32_t fa2i_window_right(const fa2_problem *problem);

/* Checks any workspace that is given, needed or not. */
fa2_status fa2i_workspace_check(const void *workspace, size_t workspace_bytes);

/* Checks that the workspace has the needed bytes, which are more than 0. *ret_memory is their memory. */
fa2_status fa2i_workspace_memory(const void *workspace, size_t workspace_bytes, size_t needed_bytes,
                                 fa2i_memory *ret_memory);

/* Returns FA2_E_UNSUPPORTED if the blocks of some step cannot be divided into its clusters. */
fa2_status fa2i_clusters_check(const fa2i_recipe *recipe, const unsigned *blocks);
