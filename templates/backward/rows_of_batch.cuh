#pragma once
#include "features/params.cuh"

// Coordinates of a separate block of dQ (dq_apart.cuh): kDqRows rows of a head.
struct RowPlace {
    int first_row, head, batch;

    __device__ __forceinline__ RowPlace(const Params &p, unsigned plane, unsigned index)
        : first_row(index * kDqRows), head(plane % p.heads_q), batch(plane / p.heads_q)
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

    static __device__ __forceinline__ int dropped_plane(const Params &, unsigned plane)
    {
        return plane;
    }
};
