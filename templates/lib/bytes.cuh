#pragma once
#include "lib/elements.cuh"

// ---- 8 bits to elements ---------------------------------------------------------------------------------------------
//
// Four bytes of a word become four elements, exactly, without a conversion instruction, on every SM.
//   - An integer is put into the lower bits of a number whose lowest bit counts 1. A subtraction leaves the byte's
//     value.
//   - An e4m3 number has the fields of fp16 and bf16 with fewer bits, so shifting moves them into place. The bias of
//     the exponents differs, which is a factor of 2^-8 in fp16. The scales of rows remove it (kByteFactor). In bf16 it
//     is 2^-120, which is removed at once.
constexpr bool kBf16 = kSame<Elem, bf16>;                      // else fp16
constexpr float kByteFactor = kFp8 && !kBf16 ? 0x1p8f : 1.0f;  // numbers are elements times this

// Returns two bytes in the lower bytes of pairs, under two upper ones. kLow, kHigh: numbers of the bytes.
template <int kLow, int kHigh> __device__ __forceinline__ uint32 put_under(uint32 bytes, uint32 upper)
{
    return __byte_perm(bytes, upper, 0x4040 | kHigh << 8 | kLow);
}

// The same in the upper bytes, over zeros.
template <int kLow, int kHigh> __device__ __forceinline__ uint32 put_over_zeros(uint32 bytes)
{
    return __byte_perm(bytes, 0, 0x0404 | kHigh << 12 | kLow << 4);
}

__device__ __forceinline__ uint32 subtract_fp16(uint32 x, uint32 y)
{
    uint32 difference;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(x), "r"(y));
    return difference;
}

__device__ __forceinline__ uint32 fma_bf16(uint32 x, uint32 y, uint32 z)
{
    uint32 sum;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(y), "r"(z));
    return sum;
}

// Two integers.
//   - fp16: byte + 128 in the lower bits of 1024 is 1152 + byte.
//   - bf16 has 7 bits below its leading one. The byte's lower bits in 128 are 128 + them; its sign bit in 128 makes 128
//     or 256. The difference is the byte.
template <int kLow, int kHigh> __device__ __forceinline__ uint32 integers_to_elements(uint32 bytes)
{
    if constexpr (kBf16) {
        const uint32 both = put_under<kLow, kHigh>(bytes, 0x43434343u);
        return fma_bf16(both & 0xff7fff7fu, 0x3f803f80u, (both & 0xff80ff80u) ^ 0x80008000u);
    } else {
        return subtract_fp16(put_under<kLow, kHigh>(bytes ^ 0x80808080u, 0x64646464u), 0x64806480u);
    }
}

// Two e4m3 numbers.
template <int kLow, int kHigh> __device__ __forceinline__ uint32 numbers_to_elements(uint32 bytes)
{
    const uint32 both = put_over_zeros<kLow, kHigh>(bytes), sign = both & 0x80008000u;
    if constexpr (kBf16)
        return fma_bf16((both >> 4 & 0x07f007f0u) | sign, 0x7b807b80u, 0x80008000u);
    else
        return (both >> 1 & 0x3f803f80u) | sign;
}

// Returns bytes kLow and kHigh of a word as elements.
template <int kLow, int kHigh> __device__ __forceinline__ uint32 bytes_to_elements(uint32 bytes)
{
    if constexpr (kFp8)
        return numbers_to_elements<kLow, kHigh>(bytes);
    else
        return integers_to_elements<kLow, kHigh>(bytes);
}
