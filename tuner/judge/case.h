/*
 * A case: a problem with its tensors, described so briefly that the worker process can make them on
 * the device and the parent can make the same numbers on the host. Tuned problems and the
 * adversarial problems of the verification are cases.
 *
 * Data. Each input tensor repeats a block of FA2I_CASE_PERIOD elements: element i is block[i %
 * FA2I_CASE_PERIOD]. Large tensors are filled by copies on the device, and any row can be computed
 * without the tensor. The numbers are nearly normal (never zeros: zeros cost less power and run
 * faster), and the period is no multiple of a power of two above 8, so rows of heads and batches
 * differ. Outputs lie between guards of FA2I_GUARD_BYTES, and everything is FA2I_POISON before a
 * launch: NaN in fp16, bf16 and fp32. What a kernel does not write stays NaN, and a guard that is
 * no longer poison was overwritten (the GPU's own NaN is another one).
 *
 * Plain data, sent over the pipe as it is. Pure functions; thread-safe.
 */
#ifndef FA2I_CASE_H
#define FA2I_CASE_H

#include "runtime/base/record.h"

enum {
    FA2I_CASE_PERIOD = 8 * 32749, /* 32749 is prime */
    FA2I_GUARD_BYTES = 65536
};
#define FA2I_POISON 0xffffffffu

typedef enum fa2i_layout {
    FA2I_LAYOUT_BSHD = 0,  /* [batch, seq, head, D], dense */
    FA2I_LAYOUT_BHSD = 1,  /* [batch, head, seq, D], dense */
    FA2I_LAYOUT_GAPPED = 2 /* [batch, seq, head, D + 8]: the 8 belong to nobody */
} fa2i_layout;

typedef enum fa2i_operand {
    FA2I_OPERAND_Q = 0,
    FA2I_OPERAND_K = 1,
    FA2I_OPERAND_V = 2,
    FA2I_OPERAND_O = 3
} fa2i_operand;

typedef struct fa2i_case {
    fa2_problem problem;
    fa2i_layout layout;
    int32_t want_lse;
    float q_magnitude; /* standard deviation of Q; K and V have 1 */
    uint64_t seed;
} fa2i_case;

/* Where the elements of a tensor are. */
typedef struct fa2i_extent {
    int64_t stride_batch, stride_seq, stride_head; /* elements */
    int64_t elems;                                 /* from the first to the end of the last row */
} fa2i_extent;

fa2i_extent fa2i_case_extent(const fa2i_case *c, fa2i_operand operand);

/* The first min(elems, FA2I_CASE_PERIOD) elements of an input, and how many that is. out has room
 * for FA2I_CASE_PERIOD. */
size_t fa2i_case_fill(const fa2i_case *c, fa2i_operand operand, uint16_t *out);

/* Device memory that a case takes: tensors, LSE, guards. */
size_t fa2i_case_bytes(const fa2i_case *c);

/* Random numbers, reproducible: the next one of a state that any seed starts (splitmix64). */
uint64_t fa2i_random(uint64_t *state);

#endif
