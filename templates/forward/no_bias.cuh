#pragma once
#include "forward/coord.cuh"

using BiasElem = unsigned short;
constexpr int kTogether = 2;

__device__ __forceinline__ float bias_number(BiasElem)
{
    return 0.0f;
}

struct NoBias {
    static constexpr float inverse_scale = 1.0f;

    __device__ __forceinline__ NoBias(const Params &, const BlockCoord &, int, int) {}

    template <bool kMasked> __device__ __forceinline__ bool reads_side(int) const
    {
        return true;
    }

    template <bool kMasked, bool kSide, class... Any> __device__ __forceinline__ void load(const Any &...) const {}
};

using Bias = NoBias;
