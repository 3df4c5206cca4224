#pragma once
#include "lib/mma.cuh"

// ---- numbers to 8 bits ----------------------------------------------------------------------------------------------

// How numbers become integers from -127 to 127.
struct Rounding {
    float scale, inverse;

    static constexpr float kToInteger = 0x1.8p23f;

    // Returns the integer in the lowest byte. Adding 1.5 * 2^23 rounds to the nearest, at a fourth of the time of a
    // conversion.
    __device__ __forceinline__ uint32 byte(float x) const
    {
        return __float_as_uint(fmaf(x, inverse, kToInteger));
    }
};

// most: the bits of the largest absolute value. A NaN is larger than all numbers, and makes the scale NaN.
__device__ __forceinline__ Rounding rounding_to(uint32 most)
{
    const float x = __uint_as_float(most);
    return {x * (1.0f / 127.0f), x > 0.0f ? 127.0f / x : 0.0f};
}

// Packs the lowest bytes of four words.
__device__ __forceinline__ uint32 pack_bytes(uint32 a, uint32 b, uint32 c, uint32 d)
{
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

__device__ __forceinline__ uint32 absolute_bits(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

// Returns the nearest fp16 number, in the lower half.
__device__ __forceinline__ uint32 half_bits(float x)
{
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
    return half;
}

// Returns the nearest e4m3 number to one whose magnitude is below 464. Numbers below 2^-6 are multiples of 2^-9: adding
// 1.5 * 2^14 leaves how many in the lower bits. The fields of others are shifted into place, and rounded to even.
__device__ __forceinline__ uint32 e4m3_byte(float x)
{
    const uint32 bits = absolute_bits(x), sign = __float_as_uint(x) >> 24 & 0x80u;
    const uint32 few = __float_as_uint(__uint_as_float(bits) + 24576.0f) & 0xfu;
    const uint32 rounded = (bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20;
    return sign | (bits < 0x3c800000u ? few : rounded - (120u << 3));
}

// How the elements of a row of K or V become bytes. A scale in fp16 is rounded itself, so numbers may exceed the most.
struct RowRounding : Rounding {
    static constexpr float kMost = kFp8 ? 448.0f : 127.0f;

    __device__ __forceinline__ uint32 row_byte(float x) const
    {
        if constexpr (kFp8)
            return e4m3_byte(fminf(fmaxf(x * inverse, -kMost), kMost));
        else
            return __float_as_uint(fminf(fmaxf(__uint_as_float(byte(x)), kToInteger - kMost), kToInteger + kMost));
    }

    // Returns four bytes.
    __device__ __forceinline__ uint32 bytes(const float2 &x, const float2 &y) const
    {
        return pack_bytes(row_byte(x.x), row_byte(x.y), row_byte(y.x), row_byte(y.y));
    }

    // Writes the scale.
    __device__ __forceinline__ void put(char *at) const
    {
        if constexpr (kHalfScales)
            *reinterpret_cast<unsigned short *>(at) = half_bits(scale);
        else
            *reinterpret_cast<float *>(at) = scale;
    }
};

// most: as of rounding_to.
__device__ __forceinline__ RowRounding row_rounding_to(uint32 most)
{
    const float x = __uint_as_float(most), scale = x * (1.0f / RowRounding::kMost);
    if constexpr (!kHalfScales)
        return {{scale, x > 0.0f ? RowRounding::kMost / x : 0.0f}};
    const float rounded = fp16::unpack(half_bits(scale)).x;
    return {{rounded, rounded > 0.0f ? 1.0f / rounded : 0.0f}};
}
