#pragma once
#include "features/params.cuh"

// ---- block coordinates: which rows and which sequence a block has --------------------------------------------------
//
// Policies: SequenceCoord (batches.cuh, sequences.cuh), and BlockCoord, which is one with rows (rows_of_head.cuh,
// rows_of_group.cuh) and their places in tensors.

// Adds to a policy of rows where a row lies in Q, O and LSE.
template <class Rows> struct PlacedRows : Rows {
    using Rows::Rows;

    // Element offset of a row of Q or O.
    __device__ __forceinline__ int64 offset(const Params &p, const Strides &stride, int row) const
    {
        if constexpr (kVarlen)
            return this->query_head(p, row) * stride.head + (this->sequence.first_q + this->query(p, row)) * stride.seq;
        else
            return this->batch * stride.batch + this->query_head(p, row) * stride.head +
                   this->query(p, row) * stride.seq;
    }

    // Index of a row in LSE.
    __device__ __forceinline__ int64 index(const Params &p, int row) const
    {
        if constexpr (kVarlen)
            return int64(this->query_head(p, row)) * p.features.total_q + this->sequence.first_q + this->query(p, row);
        else
            return (int64(this->batch) * p.heads_q + this->query_head(p, row)) * p.seq_q + this->query(p, row);
    }
};

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
