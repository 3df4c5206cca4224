/*
 * The test data of features' operands, for any operation. These are fa2i_operand.fill functions.
 */
#ifndef FA2I_FEATURE_DATA_H
#define FA2I_FEATURE_DATA_H

#include "tuner/judge/features.h"
#include "tuner/judge/judge.h"

/* Slopes from 1 to 1/256, and a 0. */
fa2_status fa2i_fill_slopes(const fa2i_case *c, int operand, size_t count, void *out);

/* Sinks from far below to far above the scores of a row, and a -infinity. */
fa2_status fa2i_fill_sinks(const fa2i_case *c, int operand, size_t count, void *out);

/* Numbers of magnitude 1, or a mask. Tiles, rows and single keys are hidden. */
fa2_status fa2i_fill_bias(const fa2i_case *c, int operand, size_t count, void *out);

/* Seed and offset on the device. */
fa2_status fa2i_fill_seeds(const fa2i_case *c, int operand, size_t count, void *out);

/* Bounds of packed sequences, for queries and keys. WILD ones begin after the first row, are too long or empty, and go
 * on past the last row. If nothing is written to keys, key ranges overlap, and some bounds lie far before the first
 * row. */
fa2_status fa2i_fill_bounds_q(const fa2i_case *c, int operand, size_t count, void *out);
fa2_status fa2i_fill_bounds_k(const fa2i_case *c, int operand, size_t count, void *out);

/* Packs the sequences of a case and adds `more`. All but the longest have half the rows. */
void fa2i_case_pack(fa2i_case *c, int more);

/* The arguments of a call on these operands. An address is 0 if the case does not have the operand. */
fa2_alibi fa2i_case_alibi(const fa2i_case *c, const uint64_t addresses[FA2I_OPERANDS_MAX],
                          int operand);
fa2_bias_tensor fa2i_case_bias_tensor(const fa2i_case *c,
                                      const uint64_t addresses[FA2I_OPERANDS_MAX], int operand);
fa2_bias_gradient fa2i_case_bias_gradient(const fa2i_case *c,
                                          const uint64_t addresses[FA2I_OPERANDS_MAX], int operand);

/* The dropout of a case. The first is for the call: seeds is the address of that operand, or 0. The second is what a
 * launch reads: seeds is the operand on the host, or NULL. */
fa2_dropout fa2i_case_dropout(const fa2i_case *c, uint64_t seeds);
fa2_dropout fa2i_case_dropout_found(const fa2i_case *c, const uint64_t *seeds);

/* The indexes of these operands in an operation's list. */
typedef struct fa2i_feature_operands {
    int slopes, sinks, bias, seeds;
} fa2i_feature_operands;

/* The features' operands for a reference. They borrow from the inputs. */
fa2i_features fa2i_case_features(const fa2i_case *c, const fa2i_feature_operands *operands,
                                 const fa2i_inputs *inputs);

#endif
