/*
 * The functions of features_rows.c that features.c needs, and the checks that both use. Errors and threads: see
 * features.h.
 */
#ifndef FA2I_OPS_FEATURES_ROWS_H
#define FA2I_OPS_FEATURES_ROWS_H

#include "runtime/ops/features.h"

/* Returns FA2_E_INVALID if a field of the problem asks for data and there is no pointer. */
fa2_status fa2i_feature_check_given(const char *name, const void *data, int field, int32_t asked);

/* Checks that an input shares no byte with any of the outputs. */
fa2_status fa2i_feature_check_apart(const fa2i_memory *input, const fa2i_memory *const *outputs,
                                    int output_count);

/* Checks a call's arguments about rows. The arrays that the problem asks for are given, aligned, at strides within
 * bounds, and share no byte with the outputs. Counts and pages are within what kernels count. K and V were checked. The
 * contents of the arrays are in device memory, and are not read. FA2_E_INVALID. */
fa2_status fa2i_feature_rows_check(const fa2_problem *problem, const fa2i_feature_args *args,
                                   const fa2i_memory *const *outputs, int output_count);

/* Fills the members about rows from arguments that were checked. */
void fa2i_feature_rows_fill(const fa2_problem *problem, const fa2i_feature_args *args,
                            fa2i_feature_params *params);

#endif
