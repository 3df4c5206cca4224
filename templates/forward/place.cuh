#pragma once
#include "features/cache.cuh"
#include "features/lengths.cuh"
#include "features/shares.cuh"
#include "features/params.cuh"

// ---- block coordinates: which rows and which sequence a block has --------------------------------------------------

// The sequence of a block, and its row in the K/V cache. Only kernels with lengths have these members: an unused member
// may change ptxas's register allocation.
struct KeptSequence {
    Sequence sequence;

    __device__ __forceinline__ void find_sequence(const Params &p, int batch)
    {
        sequence = Sequence(p, batch);
    }
};

struct NoSequence {
    struct {
        int seq_k, seq_q, first_q, first_k, before;
    } static constexpr sequence{};

    __device__ __forceinline__ void find_sequence(const Params &, int)
    {
    }
};

struct KeptCacheRow {
    int cache_row;

    __device__ __forceinline__ void find_cache_row(const Params &p, int batch)
    {
        cache_row = cache_row_of(p, batch);
    }
};

struct NoCacheRow {
    static constexpr int cache_row = 0;

    __device__ __forceinline__ void find_cache_row(const Params &, int)
    {
    }
};

// The batch or sequence of a block, with its lengths.
struct SequencePlace : Either<kLengths, KeptSequence, NoSequence>::Type,
                       Either<kCacheRows, KeptCacheRow, NoCacheRow>::Type {
    int batch;  // -1: the block has nothing to do

    __device__ __forceinline__ int seq_q(const Params &p) const
    {
        return kVarlen ? sequence.seq_q : p.seq_q;
    }

    __device__ __forceinline__ int seq_k(const Params &p) const
    {
        return kLengths ? sequence.seq_k : p.seq_k;
    }

    // The batch index into K and V.
    __device__ __forceinline__ int key_batch() const
    {
        return kCacheRows ? cache_row : batch;
    }

    __device__ __forceinline__ int64 slot() const
    {
        return 0;
    }

    // Keys of the cache row (or of its pages) before the sequence's first key.
    __device__ __forceinline__ int padding() const
    {
        return kLeftpad ? sequence.first_k : 0;
    }
};

// Work of a block from the grid, one block per work tile: the row tile, and either the head and batch, or the split,
// key head and batch.
struct WorkOfGrid {
    static __device__ __forceinline__ unsigned tile(const Params &p)
    {
        return blockIdx.x % p.q_tiles;
    }

    static __device__ __forceinline__ unsigned plane(const Params &p)
    {
        return blockIdx.x / p.q_tiles;
    }
};

// Coordinates of a block with kBr query rows of one head.
struct RowsOfHead : SequencePlace {
    int first_row, rows;  // first row of the block; rows of the tensor
    int head;
    static constexpr int split = 0, part = -1;

    // Heavy tiles first when causal: the last rows see the most keys. With a window all rows but the first ones see
    // equally many.
    template <class Work> __device__ __forceinline__ RowsOfHead(const Params &p, const Work &work) : rows(p.seq_q)
    {
        if constexpr (kVarlen) {
            const int tile = blockIdx.x % p.q_tiles;
            head = blockIdx.x / p.q_tiles;
            auto first = [&](int b) { return first_tile(p.features.cu_seqlens_q, p.features.total_q, kBr, b); };
            batch = last_sequence(p, tile, first);
            find_sequence(p, batch);
            rows = sequence.seq_q;
            const int own = tile - first(batch), tiles = (rows + kBr - 1) / kBr;
            first_row = (kCausal ? tiles - 1 - own : own) * kBr;
            if (own < 0 || own >= tiles)
                batch = -1;  // nothing to do
        } else {
            const unsigned tile = work.tile(p), plane = work.plane(p);
            first_row = (kCausal ? p.q_tiles - 1 - tile : tile) * kBr;
            head = plane % p.heads_q;
            batch = plane / p.heads_q;
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

    // Element offset of a row of Q or O.
    __device__ __forceinline__ int64 offset(const Params &, const Strides &stride, int row) const
    {
        if constexpr (kVarlen)
            return head * stride.head + (sequence.first_q + row) * stride.seq;
        else
            return batch * stride.batch + head * stride.head + row * stride.seq;
    }

    // Index of a row in LSE.
    __device__ __forceinline__ int64 index(const Params &p, int row) const
    {
        if constexpr (kVarlen)
            return int64(head) * p.features.total_q + sequence.first_q + row;
        else
            return (int64(batch) * p.heads_q + head) * p.seq_q + row;
    }

    // Number of blocks that divide the keys of its rows.
    __device__ __forceinline__ int splits(const Params &) const
    {
        return 1;
    }

    // Sets rows of O that belong to no sequence to 0, and their LSE to -infinity. Called by all threads of a block.
    static __device__ __forceinline__ void clear_unused_rows(const Params &p)
    {
        const int head = blockIdx.x / p.q_tiles;
        const int64 first = int64(blockIdx.x % p.q_tiles) * kBr;
        clear_unused<kThreads>(p.features.cu_seqlens_q, p.batch, p.features.total_q, first, first + kBr, kHeadDimV / 8,
                               [&](int row, int chunk) {
                                   *reinterpret_cast<uint4 *>(
                                       p.o + (head * p.o_stride.head + row * p.o_stride.seq) * 2 + chunk * 16) =
                                       uint4{};
                                   if (chunk == 0 && p.lse != nullptr)
                                       p.lse[int64(head) * p.features.total_q + row] = minus_infinity();
                               });
    }
};

// Coordinates of a block with kBr packed rows, and a part of the keys if blocks divide them (kSplit). The query heads
// of a group are rows of one matrix, row = query * group + head in the group, so K and V are read once for all of them.
// The visible tiles of a row tile are divided among p.splits blocks. If sequences have their own lengths,
// features/shares.cuh divides them.
struct RowsOfGroup : SequencePlace {
    int first_row, rows;  // first row of the block; number of packed rows
    int split, key_head;
    int own_splits;  // blocks that divide the keys of this row tile, if sequences have their own lengths
    int part;        // index of this block's partial result if sequences are packed; -1: it writes O

    template <class Work>
    __device__ __forceinline__ RowsOfGroup(const Params &p, const Work &work) : rows(p.seq_q * p.group)
    {
        if constexpr (kLengths) {
            const int slot = blockIdx.x % p.features.slots;
            const Slots slots(p, [=](int, int end) { return slot < end; });
            key_head = blockIdx.x / p.features.slots;
            batch = slots.batch;
            if (batch < 0)  // nothing to do
                return;
            own_splits = slots.shares;
            split = (slot - slots.first) % own_splits;
            first_row = (slot - slots.first) / own_splits * kBr;
            find_sequence(p, batch);
            if constexpr (kVarlen) {
                part = slots.first_part + slot - slots.first;
                part = own_splits > 1 && part < part_slots(p) ? key_head * part_slots(p) + part : -1;
                rows = sequence.seq_q * p.group;
            }
        } else {
            const unsigned tile = work.tile(p);
            unsigned rest = work.plane(p);
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

    // Element offset of a row of Q or O.
    __device__ __forceinline__ int64 offset(const Params &p, const Strides &stride, int row) const
    {
        if constexpr (kVarlen)
            return query_head(p, row) * stride.head + (sequence.first_q + query(p, row)) * stride.seq;
        else
            return batch * stride.batch + query_head(p, row) * stride.head + query(p, row) * stride.seq;
    }

    // Index of a row in LSE.
    __device__ __forceinline__ int64 index(const Params &p, int row) const
    {
        if constexpr (kVarlen)
            return int64(query_head(p, row)) * p.features.total_q + sequence.first_q + query(p, row);
        else
            return (int64(batch) * p.heads_q + query_head(p, row)) * p.seq_q + query(p, row);
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

    // Sets rows of O of queries that belong to no sequence to 0, and their LSE to -infinity. Called by all threads of a
    // block.
    static __device__ __forceinline__ void clear_unused_rows(const Params &p)
    {
        constexpr int kRowChunks = kHeadDimV / 8;
        const int64 slot = blockIdx.x % p.features.slots;
        const int first_head = blockIdx.x / p.features.slots * p.group;
        clear_unused<kThreads>(p.features.cu_seqlens_q, p.batch, p.features.total_q, slot * kBr / p.group,
                               (slot + 1) * kBr / p.group, p.group * kRowChunks, [&](int row, int part) {
                                   const int head = first_head + part / kRowChunks, chunk = part % kRowChunks;
                                   *reinterpret_cast<uint4 *>(
                                       p.o + (head * p.o_stride.head + row * p.o_stride.seq) * 2 + chunk * 16) =
                                       uint4{};
                                   if (chunk == 0 && p.lse != nullptr)
                                       p.lse[int64(head) * p.features.total_q + row] = minus_infinity();
                               });
    }
};

using BlockPlace = Either<kPackedHeads, RowsOfGroup, RowsOfHead>::Type;
