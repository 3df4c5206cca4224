/*
 * Tensor maps: how TMA finds the operands of a call. Encoded per call, since they hold addresses and
 * strides; pure arithmetic of the driver's, without a context.
 */
#ifndef FA2I_CUDA_TENSOR_MAP_H
#define FA2I_CUDA_TENSOR_MAP_H

#include "runtime/cuda/cuda_api.h"
#include "runtime/ops/op.h"

/* The maps of a recipe, in its order. params: made for the problem. FA2_E_CUDA, naming the operand, when
 * the driver takes no such map: strides of 2^40 bytes or more. Takes no lock and allocates nothing. */
fa2_status fa2i_maps_encode(const fa2i_cuda_table *cuda, const fa2i_recipe *recipe,
                            const fa2_problem *problem, const fa2i_params *params,
                            CUtensorMap maps[FA2I_RECIPE_MAPS]);

#endif
