/*
 * The operands of backward, what is in them (fp16 or bf16 numbers, and an LSE in fp32), and what should come out. For
 * backward.c.
 */
#ifndef FA2I_BACKWARD_DATA_H
#define FA2I_BACKWARD_DATA_H

#include "tuner/judge/attention.h"
#include "tuner/judge/features.h"
#include "tuner/judge/judge.h"
#include "tuner/judge/reference.h"

/* In the order of the judge's list. For the files of backward alone, so without a prefix: they read as the
 * formulas in fa2.h do. */
enum {
    Q,
    K,
    V,
    O,
    DO,
    LSE,
    SLOPES,
    SINKS,
    BIAS,
    SEEDS,
    CU_Q,
    CU_K,
    INPUTS,
    DQ = INPUTS,
    DK,
    DV,
    DSINKS,
    DBIAS,
    OPERANDS
};

/* For fa2i_operand.fill. */
fa2_status fa2i_backward_data(const fa2i_case *c, int operand, size_t count, void *out);

/* What is said of sequences, and what features read, of the inputs of a case. Borrowed of them. */
fa2i_said fa2i_backward_said(const fa2i_inputs *inputs);
fa2i_features fa2i_backward_case_features(const fa2i_case *c, const fa2i_inputs *inputs);

/* fa2i_judge.reference (backward_reference.c). */
fa2_status fa2i_backward_reference(const fa2i_case *c, const fa2i_inputs *inputs, int threads,
                                   fa2i_wanted *outputs);

/* Rows of so many columns of a head of a sequence, unless they are there (fa2i_host_head). An empty one leaves what
 * is there: the next one may begin where it does. */
static inline void fa2i_sequence_head(const fa2i_host_tensor *tensor, const fa2i_sequence *s,
                                      int32_t head, int32_t first, int32_t count, int columns,
                                      float *out, int64_t *at)
{
    if (count > 0)
        fa2i_host_head(tensor, s->problem.dtype, s->batch, head, first, count, columns, out, at);
}

#endif
