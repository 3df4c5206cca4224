/*
 * The operation that merges partial results: its parameter block, and the functions for its row in op.c. Other layers
 * use op.h.
 */
#pragma once

#include "runtime/base/record.h"
#include "runtime/ops/grid.h"
#include "runtime/ops/param_kinds.h"

/* The kernels' one parameter, by value. The templates make `struct Params` from the same list. */
typedef struct fa2i_merge_params {
#include "templates/merge/params.def"
} fa2i_merge_params;

/* The functions of fa2i_op, which op.h documents. args is a fa2_merge_args. */
fa2_status fa2i_merge_check_args(const fa2_problem *problem, const void *args, const fa2i_grid *grid);
fa2_status fa2i_merge_grid(const fa2i_card *card, const fa2i_recipe *recipe, const fa2_problem *problem,
                           fa2i_grid *ret_grid);
void fa2i_merge_fill(const fa2i_grid *grid, const fa2_problem *problem, const void *args,
                     fa2i_merge_params *ret_params);
double fa2i_merge_flop(const fa2_problem *problem);
double fa2i_merge_bytes(const fa2_problem *problem);
