/*
 * Tensor maps: how TMA finds the operands of a call. They hold addresses and strides; pure arithmetic of the
 * driver's, which wants a current context all the same.
 *
 * A loaded kernel keeps those that it was launched with of late, so that an operand which lies where it lay
 * before costs no call of the driver. Threads. Any may get maps; one that finds another at it does without
 * what is kept, and never waits.
 */
#ifndef FA2I_CUDA_TENSOR_MAP_H
#define FA2I_CUDA_TENSOR_MAP_H

#include "runtime/cuda/cuda_api.h"
#include "runtime/ops/op.h"

typedef struct fa2i_kept_maps fa2i_kept_maps;

/* NULL when out of memory, with a message. */
fa2i_kept_maps *fa2i_kept_maps_create(void);
void fa2i_kept_maps_destroy(fa2i_kept_maps *kept); /* NULL is fine */

/* How a recipe's kernel serves a call. */
typedef enum fa2i_maps_service {
    FA2I_MAPS_SERVE,
    FA2I_MAPS_SERVE_SLOWLY, /* fa2i_op.is_scattered: it can be done without another kernel */
    FA2I_MAPS_DO_NOT_SERVE  /* no map has an operand's strides: they are 2^40 bytes or more */
} fa2i_maps_service;

/* Asks no driver. grid: of the recipe; the arguments were checked. */
fa2i_maps_service fa2i_maps_serve(const fa2i_recipe *recipe, const fa2i_grid *grid,
                                  const fa2_problem *problem, const void *args);

/* The maps of a recipe, in its order, of a call that it serves. kept: of that recipe's kernel; may be NULL. params:
 * made for the problem. FA2_E_CUDA, naming the operand, when the driver makes no such map. Allocates nothing. */
fa2_status fa2i_maps_get(const fa2i_cuda_table *cuda, fa2i_kept_maps *kept,
                         const fa2i_recipe *recipe, const fa2_problem *problem,
                         const fa2i_params *params, CUtensorMap maps[FA2I_RECIPE_MAPS]);

#endif
