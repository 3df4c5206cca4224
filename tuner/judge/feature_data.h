/*
 * The operands of features in cases: what is in them, for any operation. For fa2i_operand.fill.
 */
#ifndef FA2I_FEATURE_DATA_H
#define FA2I_FEATURE_DATA_H

#include "tuner/judge/case.h"

/* From 1 to 1/256, and a 0. */
fa2_status fa2i_fill_slopes(const fa2i_case *c, int operand, size_t count, void *out);

/* From far below to far above the scores of a row, and a -infinity. */
fa2_status fa2i_fill_sinks(const fa2i_case *c, int operand, size_t count, void *out);

#endif
