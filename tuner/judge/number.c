/*
 * Converts fp16 and bf16 by their bits, so that the compiler needs no such types.
 */
#include <assert.h>
#include <math.h>
#include <string.h>
#include "tuner/judge/number.h"

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t fp16_bits(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) /* 65520: half way from 65504 to the next number */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        /* Subnormal: fp32 numbers near 0.5 have a unit of 2^-24, so the addition rounds where fp16 does. */
        float aligned = bits_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (float_bits(aligned) - 0x3f000000u));
    }
    magnitude += 0x0fffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (magnitude - 0x38000000u) >> 13);
}

static float fp16_float(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t magnitude = (uint32_t)(bits & 0x7fffu) << 13;
    /* The exponent biases differ by 112. A subnormal fp16 number is a subnormal fp32 number before the scaling. */
    const uint32_t scaled = float_bits(bits_float(magnitude) * 0x1p112f);
    return bits_float(sign | (magnitude >= 0x7c00u << 13 ? 0x7f800000u | magnitude : scaled));
}

static uint16_t bf16_bits(float value)
{
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16 & 0x8000u) | 0x7fc0u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float bf16_float(uint16_t bits)
{
    return bits_float((uint32_t)bits << 16);
}

uint16_t fa2i_to_bits(fa2_dtype dtype, float value)
{
    switch (dtype) {
    case FA2_FP16:
        return fp16_bits(value);
    case FA2_BF16:
        return bf16_bits(value);
    case FA2_FP32:
        break;
    }
    assert(!"a dtype of 16 bits");
    return 0;
}

float fa2i_from_bits(fa2_dtype dtype, uint16_t bits)
{
    switch (dtype) {
    case FA2_FP16:
        return fp16_float(bits);
    case FA2_BF16:
        return bf16_float(bits);
    case FA2_FP32:
        break;
    }
    assert(!"a dtype of 16 bits");
    return NAN;
}

void fa2i_put_number(fa2_dtype dtype, void *elements, size_t at, float value)
{
    if (dtype == FA2_FP32)
        ((float *)elements)[at] = value;
    else
        ((uint16_t *)elements)[at] = fa2i_to_bits(dtype, value);
}

float fa2i_get_number(fa2_dtype dtype, const void *elements, size_t at)
{
    return dtype == FA2_FP32 ? ((const float *)elements)[at] : fa2i_from_bits(dtype, ((const uint16_t *)elements)[at]);
}

void fa2i_get_numbers(fa2_dtype dtype, const void *elements, size_t first, size_t count, float *out)
{
    if (dtype == FA2_FP16) /* a loop of its own, without a choice for each number */
        for (size_t i = 0; i < count; i++)
            out[i] = fp16_float(((const uint16_t *)elements)[first + i]);
    else
        for (size_t i = 0; i < count; i++)
            out[i] = fa2i_get_number(dtype, elements, first + i);
}

float fa2i_rounded(fa2_dtype dtype, float value)
{
    return dtype == FA2_FP32 ? value : fa2i_from_bits(dtype, fa2i_to_bits(dtype, value));
}

int fa2i_significant_bits(fa2_dtype dtype)
{
    return dtype == FA2_BF16 ? 8 : dtype == FA2_FP32 ? 24 : 11;
}

double fa2i_half_unit(fa2_dtype dtype, double value)
{
    const int least = dtype == FA2_BF16 || dtype == FA2_FP32 ? -126 : -14;
    const int exponent = value == 0 ? least : ilogb(value);
    return ldexp(1, (exponent > least ? exponent : least) - fa2i_significant_bits(dtype));
}
