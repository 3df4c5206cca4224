/*
 * Sums of products of matrices of 16-bit elements, a host vector of eight columns at a time: what
 * mma.sync and wgmma have in common.
 *
 * The products of fp16 and bf16 are exact in fp32 (bf16 ones unless they leave its range), and an
 * element of D is C plus the products in the order of k, each sum rounded to fp32. The hardware
 * adds in another, undocumented order with wider or truncated sums; the PTX ISA leaves it open.
 *
 * The two registers of an accumulator's 8x8 part hold its even columns and its odd ones, four of each in a
 * row: a line is such a row as it lies, the even columns before the odd ones.
 */
#ifndef SIM_MATRIX_H
#define SIM_MATRIX_H

#if defined(__F16C__) && defined(__FMA__)
#include <immintrin.h>
#endif
#include "half.h"

enum { SIM_SIDE = 8 }; /* of the matrices that a register of a warp holds */

typedef float sim_line __attribute__((vector_size(SIM_SIDE * sizeof(float))));
typedef uint16_t sim_elements __attribute__((vector_size(SIM_SIDE * sizeof(uint16_t))));

/* The columns of a line. */
static const unsigned sim_line_order[SIM_SIDE] = {0, 2, 4, 6, 1, 3, 5, 7};

/* To fp32. Of fp16: as sim_half_to_float, but for the bits of NaNs, which no sum keeps. */
static inline sim_line sim_widen(sim_elements bits, bool bf16)
{
    sim_line out;
    if (bf16) {
        for (int i = 0; i < SIM_SIDE; i++)
            out[i] = sim_float((uint32_t)bits[i] << 16);
        return out;
    }
#if defined(__F16C__) && defined(__FMA__)
    __m128i packed;
    memcpy(&packed, &bits, sizeof packed);
    const __m256 wide = _mm256_cvtph_ps(packed);
    memcpy(&out, &wide, sizeof out);
#else
    for (int i = 0; i < SIM_SIDE; i++)
        out[i] = sim_half_to_float(bits[i]);
#endif
    return out;
}

#define SIM_INTERLEAVE(a, b, high)                                                                 \
    __builtin_shufflevector(a, b, 0 + (high), 8 + (high), 1 + (high), 9 + (high), 2 + (high),      \
                            10 + (high), 3 + (high), 11 + (high))

/* Rows become columns: three rounds of interleaving i with i + 4. */
static inline void sim_transpose(sim_elements m[SIM_SIDE])
{
    sim_elements other[SIM_SIDE];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SIM_SIDE / 2; i++) {
            other[2 * i] = SIM_INTERLEAVE(m[i], m[i + SIM_SIDE / 2], 0);
            other[2 * i + 1] = SIM_INTERLEAVE(m[i], m[i + SIM_SIDE / 2], 4);
        }
        memcpy(m, other, sizeof other);
    }
}

/* The lines of an accumulator's 8x8 part, from its two registers and back; a NaN becomes that of arithmetic. */
static inline void sim_take_lines(const uint32_t *even, const uint32_t *odd,
                                  sim_line lines[SIM_SIDE])
{
    for (int row = 0; row < SIM_SIDE; row++) {
        memcpy(&lines[row], even + 4 * row, 16);
        memcpy((char *)&lines[row] + 16, odd + 4 * row, 16);
    }
}

static inline void sim_put_lines(const sim_line lines[SIM_SIDE], uint32_t *even, uint32_t *odd)
{
    for (int row = 0; row < SIM_SIDE; row++) {
        uint32_t bits[SIM_SIDE];
        for (int i = 0; i < SIM_SIDE; i++)
            bits[i] = sim_result(lines[row][i]);
        memcpy(even + 4 * row, bits, 16);
        memcpy(odd + 4 * row, bits + 4, 16);
    }
}

/* sum + a * b, rounded once or, as the product is exact, twice. */
static inline sim_line sim_add_product(sim_line sum, float a, sim_line b)
{
#if defined(__F16C__) && defined(__FMA__)
    return (sim_line)_mm256_fmadd_ps(_mm256_set1_ps(a), (__m256)b, (__m256)sum);
#else
    return sum + a * b;
#endif
}

#endif
