#pragma once
#include "features/params.cuh"

// ---- block coordinates: which rows and which sequence a block has --------------------------------------------------
//
// Policies: SequenceCoord (batches.cuh, sequences.cuh), and BlockCoord, which is one with rows (rows_of_head.cuh,
// rows_of_group.cuh).

// Work of a block from the grid, one block per work tile: the row tile, and either the head and batch, or the split,
// key head and batch.
struct WorkOfGrid {
    static __device__ __forceinline__ unsigned tile(const Params &p)
    {
        return blockIdx.x % p.q_tiles;
    }

    static __device__ __forceinline__ unsigned batch_head(const Params &p)
    {
        return blockIdx.x / p.q_tiles;
    }
};
