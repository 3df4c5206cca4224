/*
 * Arithmetic on two 16-bit numbers in a register. fp32 has more than twice their bits, so rounding a sum or a product
 * to fp32 first changes nothing. Only the sum of fma might round differently, but kernels add -0, or 8 to few bits. NaN
 * results are 0x7fff; subnormal numbers are kept.
 */
#include "half.h"

static inline float saturate(float x)
{
    return x > 0 ? x < 1 ? x : 1 : 0; /* 0 for NaN */
}

static inline uint32_t pair_of_halves(float low, float high)
{
    return sim_float_to_half(high) << 16 | sim_float_to_half(low);
}

static inline float low_half(uint32_t x)
{
    return sim_half_to_float(x & 0xffff);
}

static inline float high_half(uint32_t x)
{
    return sim_half_to_float(x >> 16);
}

static inline uint32_t fma_bfloat(uint32_t x, uint32_t y, uint32_t z)
{
    const float sum =
        fmaf(sim_bfloat_to_float(x & 0xffff), sim_bfloat_to_float(y & 0xffff), sim_bfloat_to_float(z & 0xffff));
    return sim_float_to_bfloat(sum) & 0xffff;
}

SIM_BINARY(add_sat, uint32_t,
           pair_of_halves(saturate(low_half(x) + low_half(y)), saturate(high_half(x) + high_half(y))))
SIM_BINARY(sub, uint32_t, pair_of_halves(low_half(x) - low_half(y), high_half(x) - high_half(y)))
SIM_BINARY(mul, uint32_t, pair_of_halves(low_half(x) * low_half(y), high_half(x) * high_half(y)))
SIM_TERNARY(fma_halves, uint32_t,
            pair_of_halves(fmaf(low_half(x), low_half(y), low_half(z)), fmaf(high_half(x), high_half(y), high_half(z))))
SIM_TERNARY(fma_bfloats, uint32_t, fma_bfloat(x >> 16, y >> 16, z >> 16) << 16 | fma_bfloat(x, y, z))

#define ROW(opcode, form, handler)                                                                                     \
    {                                                                                                                  \
        opcode, form, handler, SIM_KIND_FLOAT, 0                                                                       \
    }

static const sim_row rows[] = {
    ROW("add.sat.f16x2", "r s s", add_sat),
    ROW("sub.f16x2", "r s s", sub),
    ROW("mul.f16x2", "r s s", mul),
    ROW("fma.rn.f16x2", "r s s s", fma_halves),
    ROW("fma.rn.bf16x2", "r s s s", fma_bfloats),
};

const sim_rows sim_rows_half = {rows, sizeof rows / sizeof *rows};
