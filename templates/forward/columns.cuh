#pragma once
#include "lib/types.cuh"

// ---- the keys of a lane ------------------------------------------------------------------------------------------
//
// In column tile n of S a lane has two neighbouring keys: lane % 4 * kLaneKeys + key_column(n), relative to the tile's
// first key, and the next one. If kWide, the rows of K are permuted (wide_key) so that a lane has eight neighbours of
// 32 keys.
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

// Returns the key of row r of a tile, so that a lane has eight neighbours of 32 keys (kWide). Columns 2 t and 2 t + 1
// of column tile n are keys 8 t + 2 n and 8 t + 2 n + 1. Rows after the last key repeat it, and are masked.
__device__ __forceinline__ int wide_key(int r, int last)
{
    return min(r / 32 * 32 + r / 2 % 4 * 8 + r / 8 % 4 * 2 + r % 2, last);
}
