#pragma once
#include "features/params.cuh"

// Coordinates of a separate block of dQ (dq_separate.cuh): kDqRows rows of a head.
struct RowCoord {
    int first_row, head, batch;

    __device__ __forceinline__ RowCoord(const Params &p, unsigned batch_head, unsigned index)
        : first_row(index * kDqRows), head(batch_head % p.heads_q), batch(batch_head / p.heads_q)
    {
    }

    static __device__ __forceinline__ unsigned blocks(const Params &p)
    {
        return (p.seq_q + kDqRows - 1) / kDqRows;
    }

    static __device__ __forceinline__ bool has_work(const Params &p)
    {
        return p.dq != nullptr;
    }

    static __device__ __forceinline__ const Params &params(const Params &all)
    {
        return all;
    }

    // The batch number for dropout.
    __device__ __forceinline__ int sequence() const
    {
        return batch;
    }
};
