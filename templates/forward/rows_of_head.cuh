#pragma once
#include "forward/coord.cuh"

// Coordinates of a block with kBr query rows of one head.
struct RowsOfHead : SequenceCoord {
    int first_row, rows;  // first row of the block; rows of the tensor
    int head;
    static constexpr int split = 0, part = -1;

    // Heavy tiles first when causal: the last rows see the most keys. With a window all rows but the first ones see
    // equally many.
    template <class Work> __device__ __forceinline__ RowsOfHead(const Params &p, const Work &work) : rows(p.seq_q)
    {
        if constexpr (kVarlen) {
            find_packed_tile(*this, p, work);
        } else {
            const unsigned tile = work.tile(p), batch_head = work.batch_head(p);
            first_row = (kCausal ? p.q_tiles - 1 - tile : tile) * kBr;
            head = batch_head % p.heads_q;
            batch = batch_head / p.heads_q;
            find_sequence(p, batch);
            find_cache_row(p, batch);
        }
    }

    __device__ __forceinline__ int kv_head(const Params &p) const
    {
        return head / p.group;
    }

    __device__ __forceinline__ int query_head(const Params &, int) const
    {
        return head;
    }

    // Position of a row in the sequence; the causal mask compares it with keys.
    __device__ __forceinline__ int query(const Params &, int row) const
    {
        return row;
    }

    // Number of blocks that divide the keys of its rows.
    __device__ __forceinline__ int splits(const Params &) const
    {
        return 1;
    }
};

using BlockCoord = PlacedRows<RowsOfHead>;
