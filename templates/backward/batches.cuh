#pragma once
#include "features/params.cuh"

// ---- sequences: all have the tensors' lengths ----------------------------------------------------------------------
//
// Policy of kernels without packed sequences; the others have sequences.cuh.

__device__ __forceinline__ int batches(const Params &p)
{
    return p.batch;
}

// Rows of LSE and delta per head in the workspace: whole tiles.
__device__ __forceinline__ int64 rows_of_batch_head(const Params &p)
{
    return int64(p.q_tiles) * kBr;
}

using OwnParams = const Params &;

struct SequenceCoord {
    static constexpr int first_q_tile = 0, first_prepared = 0;

    static __device__ __forceinline__ void find(const Params &, unsigned, int &) {}

    static __device__ __forceinline__ bool is_empty()
    {
        return false;
    }

    static __device__ __forceinline__ int q_tiles(const Params &p)
    {
        return p.q_tiles;
    }

    static __device__ __forceinline__ const Params &params(const Params &all)
    {
        return all;
    }
};

template <class Coord> __device__ __forceinline__ void clear_unused_keys(const Params &, const Coord &) {}

template <int kBlock> __device__ __forceinline__ void clear_unused_queries(const Params &, int, int64, int64) {}
