#pragma once
#include "forward/coord.cuh"

struct NoAlibi {
    __device__ __forceinline__ NoAlibi(const Params &, const BlockCoord &, int, int) {}

    template <bool kBefore> __device__ __forceinline__ float term(int, int, int, int, int) const
    {
        return 0.0f;
    }

    __device__ __forceinline__ float offset(int, int, int) const
    {
        return 0.0f;
    }

    __device__ __forceinline__ float added(float score, int, int, int, int) const
    {
        return score;
    }

    __device__ __forceinline__ bool in_product(int, int) const
    {
        return false;
    }
};

using Alibi = NoAlibi;
