#pragma once
#include "lib/types.cuh"

// ---- the keys of a lane ------------------------------------------------------------------------------------------
//
// Of column tile n of S a lane has two neighbouring keys: lane % 4 * kLaneKeys + key_column(n) and the next one, counted
// from the tile's first key. If kWide, the rows of K are permuted (keys.cuh) so that it has eight neighbours of 32.
constexpr int kLaneKeys = kWide ? 8 : 2;

__device__ __forceinline__ int key_column(int n)
{
    if constexpr (kWide)
        return n / 4 * 32 + n % 4 * 2;
    else if constexpr (kWgmma && kSplit)  // each warpgroup computes S of its own keys
        return threadIdx.x / 128 * (kBc / kParts) + n * 8;
    else
        return n * 8;
}
