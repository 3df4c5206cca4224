/*
 * The forward operation: its parameter block, and the functions for its row in op.c. Other layers use op.h.
 */
#pragma once

#include "runtime/base/record.h"
#include "runtime/ops/features.h"
#include "runtime/ops/grid.h"

/* The kernels' one parameter, by value. The templates make `struct Params` from the same list. */
typedef struct fa2i_forward_params {
#include "templates/forward/params.def"
    fa2i_feature_params features;
} fa2i_forward_params;

/* The functions of fa2i_op, which op.h documents. args is a fa2_forward_args. */
fa2_status fa2i_forward_check_args(const fa2_problem *problem, const void *args, const fa2i_grid *grid);
fa2_status fa2i_forward_check_closely(const fa2_problem *problem, const fa2_forward_args *args,
                                      const fa2i_grid *grid); /* the slow path of check_args: member by member */
fa2_status fa2i_forward_grid(const fa2i_card *card, const fa2i_recipe *recipe, const fa2_problem *problem,
                             fa2i_grid *ret_grid);
void fa2i_forward_fill(const fa2i_grid *grid, const fa2_problem *problem, const void *args,
                       fa2i_forward_params *ret_params);

/* Returns the rows of a page. */
static inline int32_t fa2i_forward_page(const fa2_problem *problem)
{
    return problem->page > 0 ? problem->page : FA2I_PAGE_ROWS;
}

/* Returns whether device memory says how many keys a sequence has. */
static inline bool fa2i_forward_has_lengths(const fa2_problem *problem)
{
    return problem->seqused || problem->varlen || problem->leftpad;
}

/* Return the rows of packed tensors. */
int32_t fa2i_forward_total_q(const fa2_problem *problem);
int32_t fa2i_forward_total_k(const fa2_problem *problem);

/* Where the step that rounds K leaves its results in the workspace, in bytes (templates/forward/int8_keys.cuh): after
 * the keys, and V if it is rounded, come means, scales and counts. tiles: of a key head, in all sequences. scales: of a
 * tile. warps: counts of a tile. */
typedef struct fa2i_int8_layout {
    size_t means_at, scales_at, counts_at;
    size_t tiles, scales, warps;
} fa2i_int8_layout;

/* The recipe has that step. */
fa2i_int8_layout fa2i_forward_int8_layout(const fa2i_recipe *recipe, const fa2_problem *problem);

/* If lengths are in device memory, work is counted, and kernels are tuned, as if they were these. With seqused they
 * rise in even steps up to seq_k. rank: 0 ... batch - 1, the shortest first. */
int32_t fa2i_forward_length(const fa2_problem *problem, int32_t rank);

/* The same for packed sequences: rank 0 is as long as possible, and the others share the rest. */
int32_t fa2i_forward_packed_length(int32_t batch, int32_t seq, int32_t total, int32_t rank);

/* Splits the problem into parts with equal lengths: the longest sequence, and the others. Returns the number of parts,
 * one or two. */
int fa2i_forward_parts(const fa2_problem *problem, fa2_problem parts[2]);

/* Returns the sum of of_part over these parts. */
double fa2i_forward_sum(const fa2_problem *problem, double (*of_part)(const fa2_problem *part));

double fa2i_forward_flop(const fa2_problem *problem);
double fa2i_forward_flop_unmasked(const fa2_problem *problem);
double fa2i_forward_bytes(const fa2_problem *problem);

/* Counts the keys that any query sees. The last query stands at the last key. */
int64_t fa2i_forward_seen_keys(const fa2_problem *problem);
