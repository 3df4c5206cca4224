#pragma once
#include "forward/coord.cuh"

// ---- addresses of rows of K and V -------------------------------------------------------------------------
//
// Policy of kernels without a paged cache. A block reads a head of K or V from a head pointer: its row 0. The scales of
// rows in 8 bits lie likewise, with strides of their own. kBytes: of an element.
template <int kBytes = kKvBytes>
__device__ __forceinline__ const char *key_head(const char *tensor, const Strides &stride, const SequenceCoord &coord,
                                                int head)
{
    if constexpr (kVarlen)
        return tensor + (coord.sequence.first_k * stride.seq + head * stride.head) * kBytes;
    else if constexpr (kLeftpad)
        return tensor +
               (coord.key_batch() * stride.batch + coord.sequence.first_k * stride.seq + head * stride.head) * kBytes;
    else
        return tensor + (coord.key_batch() * stride.batch + head * stride.head) * kBytes;
}

// A tile whose rows are contiguous in memory.
struct ContiguousRows {
    const int tile;

    __device__ __forceinline__ ContiguousRows(const Params &, const SequenceCoord &, int tile) : tile(tile) {}

    template <int kBytes = kKvBytes>
    __device__ __forceinline__ const char *at(const char *batch_head, const Strides &stride, int r) const
    {
        return batch_head + (int64(tile) * kBc + r) * stride.seq * kBytes;
    }
};

using KeyRows = ContiguousRows;
