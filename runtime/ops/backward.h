/*
 * The backward operation: its parameter block, and the functions for its row in op.c. Other layers use op.h.
 */
#pragma once

#include "runtime/base/record.h"
#include "runtime/ops/features.h"
#include "runtime/ops/grid.h"

/* The kernels' one parameter, by value. The templates make `struct Params` from the same list. */
typedef struct fa2i_backward_params {
#include "templates/backward/params.def"
    fa2i_feature_params features;
} fa2i_backward_params;

/* The functions of fa2i_op, which op.h documents. args is a fa2_backward_args. A gradient that is not wanted has no
 * memory, whatever its strides are. */
fa2_status fa2i_backward_check_args(const fa2_problem *problem, const void *args, const fa2i_grid *grid);
fa2_status fa2i_backward_grid(const fa2i_card *card, const fa2i_recipe *recipe, const fa2_problem *problem,
                              fa2i_grid *ret_grid);
size_t fa2i_backward_unmapped_bytes(const fa2_problem *problem);
void fa2i_backward_fill(const fa2i_grid *grid, const fa2_problem *problem, const void *args,
                        fa2i_backward_params *ret_params);

bool fa2i_backward_does_without(fa2i_role role, const void *args);

double fa2i_backward_flop(const fa2_problem *problem);
double fa2i_backward_flop_unmasked(const fa2_problem *problem);
double fa2i_backward_bytes(const fa2_problem *problem);
