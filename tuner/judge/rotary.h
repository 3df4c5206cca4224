/*
 * Rotary positions in the precision of kernels: pairs of columns turned by the angles of tables, each result
 * rounded to fp32 and then to the dtype. Products of two fp16 or bf16 numbers are exact in fp32, so a sum of two
 * has one rounding there, however it is computed: results are those of kernels to the bit. Pure; thread-safe.
 */
#ifndef FA2I_ROTARY_H
#define FA2I_ROTARY_H

#include "tuner/judge/rows.h"

/* Tables as host tensors of `rows` rows of rotary_dim / 2 elements. */
typedef struct fa2i_angles {
    fa2i_host_tensor cos, sin;
    int32_t rows;
} fa2i_angles;

/* Rotate the first columns of a row that stands at this position; behind the tables it counts as the last. */
void fa2i_rotate(const fa2_problem *problem, const fa2i_angles *angles, int32_t position,
                 float *row);

#endif
