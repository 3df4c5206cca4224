/*
 * Bits of fp16, bf16 and e4m3 to and from fp32, written so that the compiler vectorises it. Rounds to nearest even. NaN becomes
 * 0x7fff or 0x7fffffff, as with cvt. Conversion from fp16 creates no subnormal fp32 on the way, which would be slow on
 * the host.
 */
#pragma once

#include "lanes.h"

static inline float sim_half_to_float(uint32_t half)
{
    const uint32_t moved = (half & 0x7fff) << 13, sign = (half & 0x8000) << 16;
    const float normal = sim_float(moved + (112u << 23));
    const float tiny = sim_float(moved + (113u << 23)) - sim_float(113u << 23);
    uint32_t bits = sim_float_bits((half & 0x7c00) == 0 ? tiny : normal);
    bits = (half & 0x7c00) == 0x7c00 ? moved | 0x7f800000u : bits;
    bits = (half & 0x7fff) > 0x7c00 ? SIM_NAN : bits | sign;
    return sim_float(bits);
}

static inline uint32_t sim_float_to_half(float value)
{
    const uint32_t bits = sim_float_bits(value), sign = bits >> 16 & 0x8000;
    const uint32_t size = bits & 0x7fffffffu;
    const uint32_t normal = (size + 0xfff + (size >> 13 & 1) - 0x38000000u) >> 13;
    /* Adding 0.5 rounds to the last place of 0.5, 2^-24, which is the subnormal unit of fp16. */
    const uint32_t tiny = sim_float_bits(sim_float(size) + 0.5f) - 0x3f000000u;
    uint32_t half = size < 0x38800000u ? tiny : normal;
    half = size >= 0x47800000u ? 0x7c00 : half;
    return size > 0x7f800000u ? 0x7fff : half | sign;
}

static inline float sim_bfloat_to_float(uint32_t bfloat)
{
    return (bfloat & 0x7fff) > 0x7f80 ? sim_float(SIM_NAN) : sim_float(bfloat << 16);
}

static inline uint32_t sim_float_to_bfloat(float value)
{
    const uint32_t bits = sim_float_bits(value);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* e4m3 has no infinities. Out of range: its largest number, 448. NaN is 0x7f. Adding 2^14 rounds to the last place of
 * 2^14, 2^-9, which is the subnormal unit. */
static inline uint32_t sim_float_to_e4m3(float value)
{
    const uint32_t bits = sim_float_bits(value), sign = bits >> 24 & 0x80;
    const uint32_t size = bits & 0x7fffffffu;
    const uint32_t normal = (size + 0x7ffff + (size >> 20 & 1) - 0x3c000000u) >> 20;
    const uint32_t tiny = sim_float_bits(sim_float(size) + 0x1p14f) - sim_float_bits(0x1p14f);
    const uint32_t byte = size < 0x3c800000u ? tiny : size >= 0x43e00000u ? 0x7e : normal;
    return size > 0x7f800000u ? 0x7f : byte | sign;
}
