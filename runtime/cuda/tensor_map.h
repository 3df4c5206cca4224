/*
 * Tensor maps: how TMA finds the operands of a call. They hold addresses and strides. The driver computes them by pure
 * arithmetic, but still needs a current context.
 *
 * A loaded kernel keeps the maps of its recent launches, so an operand at the same place costs no driver call. Any
 * thread may get maps. If another thread is using the kept maps, it does without them, and never waits.
 */
#pragma once

#include "runtime/cuda/cuda_api.h"
#include "runtime/ops/op.h"

typedef struct fa2i_kept_maps fa2i_kept_maps;

/* Returns NULL if out of memory, with a message. */
fa2i_kept_maps *fa2i_kept_maps_create(void);
void fa2i_kept_maps_destroy(fa2i_kept_maps *kept); /* NULL is fine */

/* How well a recipe's kernel serves a call. */
typedef enum fa2i_maps_service {
    FA2I_MAPS_SERVE,
    FA2I_MAPS_SERVE_SLOWLY, /* fa2i_op.is_scattered: another kernel would be faster, but is not required */
    FA2I_MAPS_DO_NOT_SERVE  /* no map can have an operand's strides, which are 2^40 bytes or more */
} fa2i_maps_service;

/* Decides this without asking the driver. grid: from the recipe. The arguments were checked. */
fa2i_maps_service fa2i_maps_serve(const fa2i_recipe *recipe, const fa2i_grid *grid, const fa2_problem *problem,
                                  const void *args);

/* Gets the maps of a recipe, in its order, for a call that it serves. kept: from that recipe's kernel, or NULL. params:
 * filled for the problem. FA2_E_CUDA names the operand for which the driver makes no map. Allocates nothing. */
fa2_status fa2i_maps_get(const fa2i_cuda_table *cuda, fa2i_kept_maps *kept, const fa2i_recipe *recipe,
                         const fa2_problem *problem, const fa2i_params *params, CUtensorMap maps[FA2I_RECIPE_MAPS]);
