/*
 * Sums of products of matrices of 16-bit elements, a host vector of eight columns at a time: what
 * mma.sync and wgmma have in common.
 *
 * The products of fp16 and bf16 are exact in fp32 (bf16 ones unless they leave its range), and an
 * element of D is C plus the products in the order of k, each sum rounded to fp32. The hardware
 * adds in another, undocumented order with wider or truncated sums; the PTX ISA leaves it open.
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
