/*
 * Backward's operands, their test data (fp16 or bf16 numbers, and an LSE in fp32), and the expected gradients. For
 * backward.c.
 */
#pragma once

#include "tuner/judge/attention.h"
#include "tuner/judge/feature_data.h"
#include "tuner/judge/judge.h"
#include "tuner/judge/reference.h"

/* In the order of the judge's list. Only the files of backward use them, so they have no prefix and read like the
 * formulas in fa2.h. */
enum {
    Q,
    K,
    V,
    O,
    DO,
    LSE,
    INPUTS,
    DQ = INPUTS,
    DK,
    DV,
    FEATURES,
    DBIAS = FEATURES + FA2I_OPERAND_dbias,
    OPERANDS = FEATURES + FA2I_OPERAND_COUNT
};

/* An fa2i_operand.fill. */
fa2_status fa2i_backward_data(const fa2i_case *c, int operand, size_t count, void *out);

/* An fa2i_judge.reference (backward_reference.c). */
fa2_status fa2i_backward_reference(const fa2i_case *c, const fa2i_inputs *inputs, int threads, fa2i_wanted *outputs);

/* Loads `count` rows of a head of a sequence, unless they are there already (fa2i_host_head). count 0 leaves out and at
 * as they are, because the next sequence may begin at the same row. */
static inline void fa2i_sequence_head(const fa2i_host_tensor *tensor, const fa2i_sequence *s, int32_t head,
                                      int32_t first, int32_t count, int columns, float *out, int64_t *at)
{
    if (count > 0)
        fa2i_host_head(tensor, s->problem.dtype, s->batch, head, first, count, columns, out, at);
}
