#pragma once
#include "forward/place.cuh"

// ---- addresses of rows of K and V -------------------------------------------------------------------------
//
// Policy of kernels without a paged cache. A block reads a head of K or V from a head pointer: its row 0.
__device__ __forceinline__ const char *key_plane(const char *tensor, const Strides &stride, const BlockPlace &place,
                                                 int head)
{
    if constexpr (kVarlen)
        return tensor + (place.sequence.first_k * stride.seq + head * stride.head) * 2;
    else if constexpr (kLeftpad)
        return tensor +
               (place.key_batch() * stride.batch + place.sequence.first_k * stride.seq + head * stride.head) * 2;
    else
        return tensor + (place.key_batch() * stride.batch + head * stride.head) * 2;
}

// A tile whose rows are contiguous in memory.
struct ContiguousRows {
    const int tile;

    __device__ __forceinline__ ContiguousRows(const Params &, const BlockPlace &, int tile) : tile(tile) {}

    __device__ __forceinline__ const char *at(const char *plane, const Strides &stride, int r) const
    {
        return plane + (int64(tile) * kBc + r) * stride.seq * 2;
    }
};

using KeyRows = ContiguousRows;
