#pragma once
#include "features/cache.cuh"
#include "features/lengths.cuh"
#include "features/shares.cuh"
#include "forward/coord.cuh"

// ---- sequences: each has its own lengths, or its own row of the cache -----------------------------------------------
//
// Policy of kernels with lengths of sequences or cache rows; the others have batches.cuh.

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

    __device__ __forceinline__ void find_sequence(const Params &, int) {}
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

    __device__ __forceinline__ void find_cache_row(const Params &, int) {}
};

// The batch or sequence of a block, with its lengths.
struct SequenceCoord : Either<kLengths, KeptSequence, NoSequence>::Type,
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

// Packed sequences: finds the row tile of a block of RowsOfHead. Coord: RowsOfHead.
template <class Coord, class Work>
__device__ __forceinline__ void find_packed_tile(Coord &coord, const Params &p, const Work &)
{
    const int tile = blockIdx.x % p.q_tiles;
    coord.head = blockIdx.x / p.q_tiles;
    auto first = [&](int b) { return first_tile(p.features.cu_seqlens_q, p.features.total_q, kBr, b); };
    coord.batch = last_sequence(p, tile, first);
    coord.find_sequence(p, coord.batch);
    coord.rows = coord.sequence.seq_q;
    const int own = tile - first(coord.batch), tiles = (coord.rows + kBr - 1) / kBr;
    coord.first_row = (kCausal ? tiles - 1 - own : own) * kBr;
    if (own < 0 || own >= tiles)
        coord.batch = -1;  // nothing to do
}

// Finds the share of a block of RowsOfGroup (features/shares.cuh). Returns false if it has nothing to do.
template <class Coord, class Work>
__device__ __forceinline__ bool find_share(Coord &coord, const Params &p, const Work &)
{
    const int slot = blockIdx.x % p.features.slots;
    const Slots slots(p, [=](int, int end) { return slot < end; });
    coord.key_head = blockIdx.x / p.features.slots;
    coord.batch = slots.batch;
    if (coord.batch < 0)
        return false;
    coord.own_splits = slots.shares;
    coord.split = (slot - slots.first) % coord.own_splits;
    coord.first_row = (slot - slots.first) / coord.own_splits * kBr;
    coord.find_sequence(p, coord.batch);
    if constexpr (kVarlen) {
        coord.part = slots.first_part + slot - slots.first;
        coord.part =
            coord.own_splits > 1 && coord.part < part_slots(p) ? coord.key_head * part_slots(p) + coord.part : -1;
        coord.rows = coord.sequence.seq_q * p.group;
    }
    return true;
}

// Sets row `row` of O to 0, one chunk of it, and its LSE to -infinity. A kernel that merges in place leaves it alone.
__device__ __forceinline__ void clear_chunk(const Params &p, int head, int row, int chunk)
{
    if constexpr (kMerges && !kCarry)
        return;
    char *const to = p.o + (head * p.o_stride.head + row * p.o_stride.seq) * kOutBytes + chunk * kChunkBytes;
    *reinterpret_cast<uint4 *>(to) = uint4{};
    if constexpr (kPartial)
        *reinterpret_cast<uint4 *>(to + 16) = uint4{};
    if (chunk == 0 && p.lse != nullptr)
        p.lse[int64(head) * p.features.total_q + row] = minus_infinity();
}

// Packed sequences: clears rows of O that belong to no sequence. Called by all threads of a block.
__device__ __forceinline__ void clear_unused_rows(const Params &p)
{
    constexpr int kRowChunks = kHeadDimV / 8;
    const auto &f = p.features;
    if constexpr (kPackedHeads) {
        const int64 slot = blockIdx.x % f.slots;
        const int first_head = blockIdx.x / f.slots * p.group;
        clear_unused<kThreads>(
            f.cu_seqlens_q, p.batch, f.total_q, slot * kBr / p.group, (slot + 1) * kBr / p.group, p.group * kRowChunks,
            [&](int row, int part) { clear_chunk(p, first_head + part / kRowChunks, row, part % kRowChunks); });
    } else {
        const int head = blockIdx.x / p.q_tiles;
        const int64 first = int64(blockIdx.x % p.q_tiles) * kBr;
        clear_unused<kThreads>(f.cu_seqlens_q, p.batch, f.total_q, first, first + kBr, kRowChunks,
                               [&](int row, int chunk) { clear_chunk(p, head, row, chunk); });
    }
}
