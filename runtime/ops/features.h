/*
 * The arguments and kernel parameters of features: what operands.h does for each operand, and what single features need
 * besides. args is the argument struct of the problem's operation.
 *
 * Pure functions; thread-safe. Errors: FA2_E_INVALID naming argument and limit.
 */
#pragma once

#include "runtime/ops/operands.h"

/* Checks the features' arguments. The scales were checked. Memory that features read shares no byte with these
 * outputs. */
fa2_status fa2i_features_check(const fa2_problem *problem, const void *args, const fa2i_memory *const *outputs,
                               int output_count);

/* Checks probability and pointers of dropout alone. */
fa2_status fa2i_dropout_check(const fa2_dropout *dropout);

/* Returns whether a 16-bit bias must be read number by number, because no row consists of aligned pairs. */
bool fa2i_bias_is_scattered(const fa2_problem *problem, const fa2_bias_tensor *bias);

/* Checks the strides of a bias gradient, which was located: no two elements share memory by them, except by strides of
 * 0. With deterministic no stride is 0. */
fa2_status fa2i_bias_gradient_check(const fa2_problem *problem, const fa2_backward_args *args);

/* Fills the parameters from arguments that were checked. scale: the factor of scores in the exponent. */
void fa2i_features_fill(const fa2_problem *problem, const void *args, double scale, fa2i_feature_params *ret_params);
