#pragma once
#include "features/params.cuh"

// ---- bias: a number for each query and key, or a mask ------------------------------------------------------

// Whether it is numbers, of 16 bits.
constexpr bool kBiasNumbers = kBias != BiasKind::kNone && kBias != BiasKind::kBool;
constexpr bool kBiasHalf = kBias == BiasKind::kFp16 || kBias == BiasKind::kBf16;

// An element, and two neighbours that are loaded together.
template <BiasKind kKind> struct BiasTypes {
    using Elem = unsigned short;
    using Pair = uint32;
};
template <> struct BiasTypes<BiasKind::kFp32> {
    using Elem = float;
    using Pair = float2;
};
template <> struct BiasTypes<BiasKind::kBool> {
    using Elem = unsigned char;
    using Pair = unsigned short;
};
using BiasElem = BiasTypes<kBias>::Elem;
using BiasPair = BiasTypes<kBias>::Pair;

// What is added to a score, before it is divided by the scale.
template <class Elem> __device__ __forceinline__ float bias_number(Elem x)
{
    if constexpr (kBias == BiasKind::kFp16) {
        float y;
        asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
        return y;
    } else if constexpr (kBias == BiasKind::kBf16) {
        return __uint_as_float(uint32(x) << 16);
    } else if constexpr (kBias == BiasKind::kFp32) {
        return x;
    } else {
        return x != 0 ? 0.0f : minus_infinity();
    }
}
