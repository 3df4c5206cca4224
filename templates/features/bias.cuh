#pragma once
#include "features/params.cuh"

// ---- bias: a number, or a mask bit, for each query and key ------------------------------------------------------

// The type of an element, and of two neighbours that are loaded together.
template <BiasKind kKind> struct BiasTypes {
    using Number = unsigned short;
    using Pair = uint32;
};
template <> struct BiasTypes<BiasKind::kFp32> {
    using Number = float;
    using Pair = float2;
};
template <> struct BiasTypes<BiasKind::kBool> {
    using Number = unsigned char;
    using Pair = unsigned short;
};
using BiasElem = BiasTypes<kBias>::Number;

// Returns what is added to a score, before the division by the scale.
template <class Number> __device__ __forceinline__ float bias_number(Number x)
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
