#pragma once
#include "features/append.cuh"
#include "features/between.cuh"

// ---- lengths of sequences, which are read from device memory ---------------------------------------------
//
// Any values are possible there; a sequence is always limited to the tensors.

// Returns the number of keys of a sequence, including those that this call appends.
__device__ __forceinline__ int keys_used(const Params &p, int batch)
{
    if constexpr (kAppend)
        return min(keys_before(p, batch, p.seq_k, p.features.new_count) + p.features.new_count, p.seq_k);
    else
        return between(0, __ldg(p.features.seqused_k + batch), p.seq_k);
}

// Returns the number of rows of a packed sequence that begins with row `first`; 0 if it ends before. `end` may be any
// number, so it is limited to the tensor before the subtraction.
__device__ __forceinline__ int rows_between(int first, int end, int total, int most)
{
    return between(0, between(0, end, total) - first, most);
}

// The keys of a sequence. first_k: the row of its first key, in its row of the cache.
struct UsedSequence {
    int seq_k;
    static constexpr int seq_q = 0, first_q = 0, first_k = 0, before = 0;

    UsedSequence() = default;
    __device__ __forceinline__ UsedSequence(const Params &p, int batch) : seq_k(keys_used(p, batch)) {}
};

struct PaddedSequence {
    int seq_k, first_k;
    static constexpr int seq_q = 0, first_q = 0, before = 0;

    PaddedSequence() = default;
    __device__ __forceinline__ PaddedSequence(const Params &p, int batch)
        : seq_k(p.seq_k), first_k(between(0, __ldg(p.features.leftpad + batch), p.seq_k))
    {
        if constexpr (kSeqused)
            seq_k = keys_used(p, batch);
        seq_k = max(0, seq_k - first_k);
    }
};

// A packed sequence: keys, queries, and first_q and first_k, its first rows in the packed tensors.
struct PackedSequence {
    int seq_k, seq_q, first_q, first_k;
    static constexpr int before = 0;

    PackedSequence() = default;
    __device__ __forceinline__ PackedSequence(const Params &p, int batch)
    {
        first_q = between(0, __ldg(p.features.cu_seqlens_q + batch), p.features.total_q);
        first_k = between(0, __ldg(p.features.cu_seqlens_k + batch), p.features.total_k);
        seq_q = rows_between(first_q, __ldg(p.features.cu_seqlens_q + batch + 1), p.features.total_q, p.seq_q);
        seq_k = rows_between(first_k, __ldg(p.features.cu_seqlens_k + batch + 1), p.features.total_k, p.seq_k);
        if constexpr (kSeqused && !kAppend)
            seq_k = between(0, __ldg(p.features.seqused_k + batch), seq_k);
    }
};

// A sequence whose keys grow: `before` keys in the cache, and as many new keys as queries.
struct GrowingSequence : PackedSequence {
    int before;

    GrowingSequence() = default;
    __device__ __forceinline__ GrowingSequence(const Params &p, int batch) : PackedSequence(p, batch)
    {
        before = keys_before(p, batch, seq_k, seq_q);
        seq_k = min(before + seq_q, seq_k);
    }
};

using Sequence = Either<kVarlen, Either<kAppend, GrowingSequence, PackedSequence>::Type,
                        Either<kLeftpad, PaddedSequence, UsedSequence>::Type>::Type;

__device__ __forceinline__ Sequence sequence_of(const Params &p, int batch)
{
    return Sequence(p, batch);
}

// Returns the last sequence whose first(sequence) is at most `at`. If these values decrease (invalid), returns some
// sequence. All lanes of a warp call it together; they look at 32 sequences at a time.
template <class First> __device__ __forceinline__ int last_sequence(const Params &p, int at, First first)
{
    int low = 0, count = p.batch;  // it is one of the `count` sequences from `low` on
    while (count > 1) {
        const int step = (count + 31) / 32, own = threadIdx.x % 32 * step;
        const int from = first(low + min(own, count - 1));
        const uint32 passed_by = __ballot_sync(0xffffffffu, (own < count) & (from <= at));
        const int passed = __popc(passed_by);
        const int skipped = max(0, passed - 1) * step;
        low += skipped;
        count = min(step, count - skipped);
    }
    return low;
}

// Returns the number of the first tile of sequence `batch`, where tiles of `rows` rows of all sequences are numbered.
// Each sequence has room for its rows, wherever they begin, and at most one tile too many. So the number of blocks is
// proportional to the rows, and no table is needed.
__device__ __forceinline__ int first_tile(const int *cu_seqlens, int total, int rows, int batch)
{
    return between(0, __ldg(cu_seqlens + batch), total) / rows + batch;
}

__device__ __forceinline__ int sequence_of_row(const Params &p, int packed_row)
{
    return last_sequence(p, packed_row, [&](int b) { return __ldg(p.features.cu_seqlens_q + b); });
}

// Calls clear(row, part) for each part of each row that belongs to no sequence: rows before the first bound and from
// the last bound on. A block of kBlock threads looks at rows first ... end - 1 of a packed tensor. If tile n of a head
// looks at rows n * kRows ..., all rows are covered, because there is at least one tile more than whole tiles
// (first_tile).
template <int kBlock, class Clear>
__device__ __forceinline__ void clear_unused(const int *cu_seqlens, int batch, int total, int64 first, int64 end,
                                             int parts, Clear clear)
{
    const int used_from = __ldg(cu_seqlens), used_to = __ldg(cu_seqlens + batch);
    end = min(end, int64(total));
    if (first >= end || (first >= used_from && end <= used_to))
        return;                                  // nearly always
    const int count = int(end - first) * parts;  // few rows per block, so no 64-bit division, which would branch
    for (int i = threadIdx.x; i < count; i += kBlock) {
        const int row = int(first) + i / parts;
        if (row < used_from || row >= used_to)
            clear(row, i % parts);
    }
}
