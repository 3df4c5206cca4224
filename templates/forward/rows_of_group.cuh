#pragma once
#include "forward/coord.cuh"

// Coordinates of a block with kBr packed rows, and a part of the keys if blocks divide them (kSplit). The query heads
// of a group are rows of one matrix, row = query * group + head in the group, so K and V are read once for all of them.
// The visible tiles of a row tile are divided among p.splits blocks. If sequences have their own lengths,
// features/shares.cuh divides them.
struct RowsOfGroup : SequenceCoord {
    int first_row, rows;  // first row of the block; number of packed rows
    int split, key_head;
    int own_splits;  // blocks that divide the keys of this row tile, if sequences have their own lengths
    int part;        // index of this block's partial result if sequences are packed; -1: it writes O

    template <class Work>
    __device__ __forceinline__ RowsOfGroup(const Params &p, const Work &work) : rows(p.seq_q * p.group)
    {
        if constexpr (kLengths) {
            if (!find_share(*this, p, work))
                return;
        } else {
            const unsigned tile = work.tile(p);
            unsigned rest = work.batch_head(p);
            if constexpr (kSplit) {
                first_row = tile * kBr;
                split = rest % p.splits;
                rest /= p.splits;
            } else {
                first_row = (kCausal ? p.q_tiles - 1 - tile : tile) * kBr;  // heavy tiles first
            }
            const unsigned key_heads = p.heads_q / p.group;
            key_head = rest % key_heads;
            batch = rest / key_heads;
        }
        find_cache_row(p, batch);
    }

    __device__ __forceinline__ int kv_head(const Params &) const
    {
        return key_head;
    }

    __device__ __forceinline__ int query_head(const Params &p, int row) const
    {
        return key_head * p.group + row % p.group;
    }

    // Position of a row in the sequence; the causal mask compares it with keys.
    __device__ __forceinline__ int query(const Params &p, int row) const
    {
        return row / p.group;
    }

    __device__ __forceinline__ int splits(const Params &p) const
    {
        return kLengths ? own_splits : p.splits;
    }

    // The slot of its partial result, if other blocks share its rows.
    __device__ __forceinline__ int64 slot() const
    {
        return kVarlen ? int64(part) : int64(blockIdx.x);
    }
};

using BlockCoord = PlacedRows<RowsOfGroup>;
