#pragma once
#include "features/append.cuh"
#include "features/between.cuh"

// ---- lengths: what device memory says of a sequence ------------------------------------------------------
//
// Whatever stands there, a sequence is kept within the tensors.

// Keys of a sequence, with those that come in this call.
__device__ __forceinline__ int keys_used(const Params &p, int batch)
{
    if constexpr (kAppend)
        return min(keys_before(p, batch, p.seq_k, p.features.new_count) + p.features.new_count, p.seq_k);
    else
        return between(0, __ldg(p.features.seqused_k + batch), p.seq_k);
}

// Rows of a packed sequence that begins with row `first`: none where it ends before. The end is kept within the tensor
// before anything is taken off it, as it may be any number.
__device__ __forceinline__ int rows_between(int first, int end, int total, int most)
{
    return between(0, between(0, end, total) - first, most);
}

// The keys of a sequence. first_k: its keys begin with this row of its row of K and V.
struct UsedSequence {
    int seq_k;
    static constexpr int seq_q = 0, first_q = 0, first_k = 0, before = 0;

    UsedSequence() = default;
    __device__ __forceinline__ UsedSequence(const Params &p, int batch) : seq_k(keys_used(p, batch))
    {
    }
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

// Of a packed sequence also its queries, and its rows of the packed tensors, which begin with first_q and first_k.
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

// before: keys that it has before the new ones come, which are as many as its queries.
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

// The last sequence whose first(sequence) is at most `at`, if they do not fall; some sequence if they do. By the
// lanes of a warp together, which look at 32 sequences at a time.
template <class First> __device__ __forceinline__ int last_sequence(const Params &p, int at, First first)
{
    int low = 0, count = p.batch;  // it is one of so many
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

// Tiles of `rows` rows of all sequences are numbered: those of sequence b begin here. So each has room for its
// rows, wherever they begin, and at most one tile too many: blocks come in proportion to rows, without a table.
__device__ __forceinline__ int first_tile(const int *cu_seqlens, int total, int rows, int batch)
{
    return between(0, __ldg(cu_seqlens + batch), total) / rows + batch;
}

__device__ __forceinline__ int sequence_of_row(const Params &p, int packed_row)
{
    return last_sequence(p, packed_row, [&](int b) { return __ldg(p.features.cu_seqlens_q + b); });
}

// Calls clear(row, part) for each of the parts of rows that no sequence has: rows before the first bound and from the
// last one on. A block of kBlock threads looks at rows first ... end - 1 of a packed tensor. Tile n of a head looks at
// rows n * kRows ... : there are numbers enough, one more than whole tiles at least (first_tile).
template <int kBlock, class Clear>
__device__ __forceinline__ void clear_unused(const int *cu_seqlens, int batch, int total, int64 first, int64 end,
                                             int parts, Clear clear)
{
    const int used_from = __ldg(cu_seqlens), used_to = __ldg(cu_seqlens + batch);
    end = min(end, int64(total));
    if (first >= end || (first >= used_from && end <= used_to))
        return;                                  // nearly always
    const int count = int(end - first) * parts;  // a block's few rows: no 64-bit division, which would branch
    for (int i = threadIdx.x; i < count; i += kBlock) {
        const int row = int(first) + i / parts;
        if (row < used_from || row >= used_to)
            clear(row, i % parts);
    }
}
