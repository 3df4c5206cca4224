/*
 * The functions of features_rows.c that features.c needs. Errors and threads: see features.h.
 */
#pragma once

#include "runtime/ops/operands.h"

/* Checks the numbers of a call that belong to an operand about rows: counts, and what kernels can count. K and V were
 * checked. FA2_E_INVALID. */
fa2_status fa2i_feature_rows_check(const fa2_problem *problem, const void *args, int operand);

/* Fills the numbers about rows from arguments that were checked. fa2i_operands_fill fills the pointers. */
void fa2i_feature_rows_fill(const fa2_problem *problem, const void *args, fa2i_feature_params *params);
