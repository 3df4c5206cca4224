#pragma once
#include "lib/ptx.cuh"

// ---- warps that share rows -------------------------------------------------------------------------------
//
// kParts warps, one after the other, have the same rows: of Q and K each multiplies every kParts-th 16 columns, and
// of O each computes every kParts-th 16 columns. Between the products all add up what they have of S, in an
// order that gives each the same; softmax, masks and features are as in a warp that has rows for itself.
// Warpgroups that share rows each compute S of all keys, and their columns of O: they exchange no S.

__device__ __forceinline__ int own_part()
{
    if constexpr (kParts == 1)
        return 0;
    else if constexpr (kWgmma)
        return threadIdx.x / 128;
    else
        return threadIdx.x / 32 % kParts;
}

// Which chunk of a row of O this warp's column tile n is.
__device__ __forceinline__ int own_chunk(int n)
{
    if constexpr (kParts == 1)
        return n;
    else if constexpr (kWgmma)
        return own_part() * kOutTiles + n;
    else
        return (n / 2 * kParts + own_part()) * 2 + n % 2;
}
