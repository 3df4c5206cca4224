/*
 * What features.c asks of features_rows.c, and what both check with. As features.h.
 */
#ifndef FA2I_OPS_FEATURES_ROWS_H
#define FA2I_OPS_FEATURES_ROWS_H

#include "runtime/ops/features.h"

/* FA2_E_INVALID where there is no data for a field of the problem that asks for it. */
fa2_status fa2i_feature_check_given(const char *name, const void *data, int field, int32_t asked);

/* Whether an input shares no byte with any of the outputs. */
fa2_status fa2i_feature_check_apart(const fa2i_memory *input, const fa2i_memory *const *outputs,
                                    int output_count);

/* Whether what a call says of rows can be used: the arrays that its problem asks for are given, aligned, at strides
 * within bounds, and share no byte with the outputs; counts and pages are within what kernels count. K and V were
 * checked. What stands in the arrays is in device memory, and not looked at. FA2_E_INVALID, args untouched. */
fa2_status fa2i_feature_rows_check(const fa2_problem *problem, const fa2i_feature_args *args,
                                   const fa2i_memory *const *outputs, int output_count);

/* Of arguments that were checked: the members that are about rows. */
void fa2i_feature_rows_fill(const fa2_problem *problem, const fa2i_feature_args *args,
                            fa2i_feature_params *params);

#endif
