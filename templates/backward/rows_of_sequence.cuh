#pragma once
#include "backward/sequences.cuh"

// Coordinates of a separate block of dQ (dq_separate.cuh): kDqRows rows of a head, in a packed sequence.
struct RowCoord {
    PackedTile<kDqRows, false> own;
    int first_row, head;
    static constexpr int batch = 0;

    __device__ __forceinline__ RowCoord(const Params &all, unsigned batch_head, unsigned index)
    {
        clear_unused_queries<kThreads>(all, batch_head, int64(index) * kDqRows, int64(index + 1) * kDqRows);
        own = PackedTile<kDqRows, false>(all, index);
        first_row = own.tile * kDqRows;
        head = batch_head;
    }

    // The packed rows of a head.
    static __device__ __forceinline__ unsigned blocks(const Params &all)
    {
        return all.features.total_q / kDqRows + all.batch;
    }

    __device__ __forceinline__ bool has_work(const Params &) const
    {
        return own.index >= 0;
    }

    __device__ __forceinline__ Params params(const Params &all) const
    {
        return own.alone(all);
    }

    // The batch number for dropout.
    __device__ __forceinline__ int sequence() const
    {
        return own.index;
    }
};
