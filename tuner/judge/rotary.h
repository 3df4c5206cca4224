/*
 * Rotary positions in the precision of kernels. Pairs of columns are turned by the angles of tables, and each result is
 * rounded to fp32 and then to the dtype. Products of two fp16 or bf16 numbers are exact in fp32, so a sum of two is
 * rounded once, however it is computed. So the results agree with kernels to the bit. Pure; thread-safe.
 */
#pragma once

#include "tuner/judge/rows.h"

/* Two tables as host tensors, of `rows` rows of rotary_dim / 2 elements. */
typedef struct fa2i_angles {
    fa2i_host_tensor cos, sin;
    int32_t rows;
} fa2i_angles;

/* Rotates the first columns of a row at this position. A position past the tables counts as the last one. */
void fa2i_rotate(const fa2_problem *problem, const fa2i_angles *angles, int32_t position, float *row);
