/*
 * The forward operation: its parameter block, and what op.c makes its row of. Other layers use op.h.
 */
#ifndef FA2I_OPS_FORWARD_H
#define FA2I_OPS_FORWARD_H

#include "runtime/base/record.h"
#include "runtime/ops/features.h"
#include "runtime/ops/grid.h"

/* The kernels' one parameter, by value; the templates make `struct Params` of the same list. */
typedef struct fa2i_forward_params {
#include "templates/forward/params.def"
    fa2i_feature_params features;
} fa2i_forward_params;

/* Where a call has what features read. */
static inline fa2i_feature_args fa2i_forward_features(const fa2_forward_args *args)
{
    return (fa2i_feature_args){.alibi = &args->alibi,
                               .sinks = &args->sinks,
                               .bias = &args->bias,
                               .dropout = &args->dropout,
                               .seqused_k = &args->seqused_k};
}

/* The functions of fa2i_op (op.h says what each does); args is a fa2_forward_args. */
fa2_status fa2i_forward_check_args(const fa2_problem *problem, const void *args,
                                   const fa2i_grid *grid);
fa2_status fa2i_forward_check_closely(const fa2_problem *problem, const fa2_forward_args *args,
                                      const fa2i_grid *grid); /* the same, member by member */
fa2_status fa2i_forward_grid(const fa2i_card *card, const fa2i_recipe *recipe,
                             const fa2_problem *problem, fa2i_grid *ret_grid);
void fa2i_forward_fill(const fa2i_grid *grid, const fa2_problem *problem, const void *args,
                       fa2i_forward_params *ret_params);

/* Where lengths are in device memory, work is counted as if they were these, which are tuned for too: even
 * steps up to seq_k. rank: 0 ... batch - 1, the shortest first. */
int32_t fa2i_forward_length(const fa2_problem *problem, int32_t rank);

double fa2i_forward_flop(const fa2_problem *problem);
double fa2i_forward_flop_unmasked(const fa2_problem *problem);
double fa2i_forward_bytes(const fa2_problem *problem);

/* Keys that any query sees: the last query stands at the last key. */
int64_t fa2i_forward_seen_keys(const fa2_problem *problem);

#endif
