/*
 * The operands of features in cases: what is in them, for any operation. For fa2i_operand.fill.
 */
#ifndef FA2I_FEATURE_DATA_H
#define FA2I_FEATURE_DATA_H

#include "tuner/judge/features.h"
#include "tuner/judge/judge.h"

/* From 1 to 1/256, and a 0. */
fa2_status fa2i_fill_slopes(const fa2i_case *c, int operand, size_t count, void *out);

/* From far below to far above the scores of a row, and a -infinity. */
fa2_status fa2i_fill_sinks(const fa2i_case *c, int operand, size_t count, void *out);

/* Numbers about 1, or a mask; tiles, rows and single keys that are hidden. */
fa2_status fa2i_fill_bias(const fa2i_case *c, int operand, size_t count, void *out);

/* Seed and offset on the device. */
fa2_status fa2i_fill_seeds(const fa2i_case *c, int operand, size_t count, void *out);

/* Where packed sequences begin, of queries and of keys. Wild ones begin behind the first row, are too long or
 * empty, and go on behind the last row; keys overlap, where nothing is written for them, and begin and end ahead of the
 * first row by as much as there is. */
fa2_status fa2i_fill_bounds_q(const fa2i_case *c, int operand, size_t count, void *out);
fa2_status fa2i_fill_bounds_k(const fa2i_case *c, int operand, size_t count, void *out);

/* Pack the sequences of a case, with so many more: all but the longest have half the rows. */
void fa2i_case_pack(fa2i_case *c, int more);

/* What a call on these operands is given; an address is 0 where the case does without. */
fa2_alibi fa2i_case_alibi(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX],
                          int operand);
fa2_bias_tensor fa2i_case_bias_tensor(const fa2i_case *c,
                                      const uint64_t addresses[FA2I_OPERANDS_MAX], int operand);
fa2_bias_gradient fa2i_case_bias_gradient(const fa2i_case *c,
                                          const uint64_t addresses[FA2I_OPERANDS_MAX], int operand);

/* The dropout of a case: that of its call, seeds: address of the operand of seeds or 0; and that which a launch
 * finds, seeds: that operand on the host or NULL. */
fa2_dropout fa2i_case_dropout(const fa2i_case *c, uint64_t seeds);
fa2_dropout fa2i_case_dropout_found(const fa2i_case *c, const uint64_t *seeds);

/* Which operands of an operation they are. */
typedef struct fa2i_feature_operands {
    int slopes, sinks, bias, seeds;
} fa2i_feature_operands;

/* What a reference reads of them; borrowed of the inputs. */
fa2i_features fa2i_case_features(const fa2i_case *c, const fa2i_feature_operands *operands,
                                 const fa2i_inputs *inputs);

#endif
