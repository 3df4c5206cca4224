/*
 * The arguments and kernel parameters of features: what operands.h does for each operand, and what single features need
 * besides. args is the argument struct of the problem's operation.
 *
 * Pure functions; thread-safe. Errors: FA2_E_INVALID naming argument and limit.
 */
#ifndef FA2I_OPS_FEATURES_H
#define FA2I_OPS_FEATURES_H

#include "runtime/ops/operands.h"

/* Checks the features' arguments. scale: the factor of scores in the exponent. Memory that features read shares no byte
 * with these outputs. */
fa2_status fa2i_features_check(const fa2_problem *problem, const void *args,
                               double scale, const fa2i_memory *const *outputs, int output_count);

/* Checks probability and pointers of dropout alone. */
fa2_status fa2i_dropout_check(const fa2_dropout *dropout);

/* Returns whether a 16-bit bias must be read number by number, because no row consists of aligned pairs. */
bool fa2i_bias_is_scattered(const fa2_problem *problem, const fa2_bias_tensor *bias);

/* Checks the strides of a bias gradient, which was located: no two elements share memory by them, except by strides of
 * 0. With deterministic there are none of 0. */
fa2_status fa2i_bias_gradient_check(const fa2_problem *problem, const fa2_backward_args *args);

/* The softmax scale that kernels of both passes compute with. Where numbers of bf16 are added to scores, the nearest
 * whose inverse is the sum of two such numbers, at most 2^-17 of it away: so products with these two are a bias exactly
 * (templates/hopper/bias_tiles.cuh), and it is products of Q and K that are off by so little. Else the scale itself. */
double fa2i_features_scale(const fa2_problem *problem, double scale);

/* Fills the parameters from arguments that were checked. */
void fa2i_features_fill(const fa2_problem *problem, const void *args, double scale,
                        fa2i_feature_params *ret_params);

#endif
