/*
 * Sums of products of matrices of floats, shared by mma.sync and wgmma. It computes eight columns at a time in
 * a host vector.
 *
 * Products of fp16, bf16, TF32 and e4m3 are exact in fp32 (of bf16 and TF32: unless they leave its range). An element of
 * D is C plus the products in the order of k, each sum rounded to fp32; with TF32 the exact sum, cut off to fp32. The
 * hardware adds in another, undocumented order, with wider or truncated sums. The PTX ISA allows both.
 *
 * An accumulator's 8x8 part has two registers: one with its even columns and one with its odd columns, four per row. A
 * line is a row in this form: the even columns first, then the odd columns.
 */
#pragma once

#if defined(__F16C__) && defined(__FMA__)
#include <immintrin.h>
#endif
#include "half.h"

enum { SIM_SIDE = 8 }; /* rows and columns of the matrices that one register of a warp holds */

typedef float sim_line __attribute__((vector_size(SIM_SIDE * sizeof(float))));
typedef uint16_t sim_elements __attribute__((vector_size(SIM_SIDE * sizeof(uint16_t))));

/* The order of columns in a line. */
static const unsigned sim_line_order[SIM_SIDE] = {0, 2, 4, 6, 1, 3, 5, 7};

/* Converts to fp32. For fp16 as sim_half_to_float, except for the bits of NaNs, which no sum keeps. */
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

/* Converts e4m3 to fp32. Its fields are those of fp16 with fewer bits, and another bias. */
static inline sim_line sim_widen_e4m3(const uint8_t bytes[SIM_SIDE])
{
    sim_elements halves;
    for (int i = 0; i < SIM_SIDE; i++)
        halves[i] = (uint16_t)((bytes[i] & 0x80) << 8 | (bytes[i] & 0x7f) << 7);
    sim_line out = sim_widen(halves, false) * 0x1p8f;
    for (int i = 0; i < SIM_SIDE; i++)
        out[i] = (bytes[i] & 0x7f) == 0x7f ? sim_float(SIM_NAN) : out[i];
    return out;
}

/* Converts signed bytes to fp32. */
static inline sim_line sim_widen_s8(const uint8_t bytes[SIM_SIDE])
{
    sim_line out;
    for (int i = 0; i < SIM_SIDE; i++)
        out[i] = (float)(int8_t)bytes[i];
    return out;
}

#define SIM_INTERLEAVE(a, b, high)                                                                                     \
    __builtin_shufflevector(a, b, 0 + (high), 8 + (high), 1 + (high), 9 + (high), 2 + (high), 10 + (high), 3 + (high), \
                            11 + (high))

/* Transposes, by three rounds of interleaving i with i + 4. */
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

/* Convert an accumulator's 8x8 part between two registers and lines. NaNs become the NaN of arithmetic. */
static inline void sim_take_lines(const uint32_t *even, const uint32_t *odd, sim_line lines[SIM_SIDE])
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

/* The same for an accumulator of fp16, whose 8x8 part has one register. */
static inline void sim_take_half_lines(const uint32_t *part, sim_line lines[SIM_SIDE])
{
    uint16_t rows[SIM_SIDE][SIM_SIDE];
    memcpy(rows, part, sizeof rows);
    for (int row = 0; row < SIM_SIDE; row++)
        for (int i = 0; i < SIM_SIDE; i++)
            lines[row][i] = sim_half_to_float(rows[row][sim_line_order[i]]);
}

static inline void sim_put_half_lines(const sim_line lines[SIM_SIDE], uint32_t *part)
{
    uint16_t rows[SIM_SIDE][SIM_SIDE];
    for (int row = 0; row < SIM_SIDE; row++)
        for (int i = 0; i < SIM_SIDE; i++)
            rows[row][sim_line_order[i]] = (uint16_t)sim_float_to_half(lines[row][i]);
    memcpy(part, rows, sizeof rows);
}

/* Returns sum + a * b. It is rounded once, or twice, which gives the same because the product is exact. */
static inline sim_line sim_add_product(sim_line sum, float a, sim_line b)
{
#if defined(__F16C__) && defined(__FMA__)
    return (sim_line)_mm256_fmadd_ps(_mm256_set1_ps(a), (__m256)b, (__m256)sum);
#else
    return sum + a * b;
#endif
}
