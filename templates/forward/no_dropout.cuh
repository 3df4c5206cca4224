#pragma once
#include "forward/coord.cuh"

// The empty policy: P without dropout.
struct NoDropout {
    __device__ __forceinline__ NoDropout(const Params &, const BlockCoord &, int, int) {}

    __device__ __forceinline__ void begin_step(int, int) {}

    __device__ __forceinline__ uint32 apply(uint32 elements, int, int, int) const
    {
        return elements;
    }
};

using Dropout = NoDropout;

__device__ __forceinline__ float kept_scale(const Params &)
{
    return 1.0f;
}
