#pragma once
#include "forward/new_rows.cuh"

// ---- the kernel before the main one: appends new keys and values to the cache, and rotates -------------------
//
// The entry points are in entry.cu.in and hopper/fwd_splitkv_sm90.cu.in.
//
// Rows of K, of V and, with rotary, of Q are processed alike, 16 bytes per thread. Q is rotated once here, into the
// workspace, and not when the main kernel loads its tile, for two reasons. Several blocks load the same rows if keys
// are divided. And a tile copied by cp.async would have to be waited for, changed, and waited for again. So the main
// kernel is the same on all SMs and knows nothing of angles.

// Writes one chunk of new row i of K or V of a sequence.
__device__ __forceinline__ void append_chunk(const Params &p, bool is_key, const NewRows &rows, int head, int i,
                                             int chunk)
{
    const int position = rows.before + i;
    if (position >= rows.end || (!is_key && chunk >= kValueChunks))
        return;  // no room for the key; or V has fewer columns
    const NewRow row(p, is_key, rows, head, i);
    if (row.to == nullptr)
        return;
    const uint4 x = kRotary && is_key ? rotated_chunk(p, row.from, chunk, position) : load_chunk(row.from, chunk);
    reinterpret_cast<uint4 *>(row.to)[chunk] = x;
}

// Packed sequences: a warp takes one packed row of one head at a time, so it searches for one sequence.
template <int kBlockThreads> __device__ __forceinline__ void append_packed(const Params &p)
{
    constexpr int kBlockWarps = kBlockThreads / 32;
    const int lane = threadIdx.x % 32, heads_kv = p.heads_q / p.group, growing = kGrowing * heads_kv;
    const int heads = kRotary ? growing + p.heads_q : growing;
    const int64 count = int64(p.features.total_q) * heads, step = int64(gridDim.x) * kBlockWarps;
    for (int64 at = int64(blockIdx.x) * kBlockWarps + threadIdx.x / 32; at < count; at += step) {
        const int packed = at / heads, head = at % heads;
        const NewRows rows(p, sequence_of_row(p, packed));
        const int i = packed - rows.sequence.first_q;
        if (i < 0 || i >= rows.sequence.seq_q)
            continue;  // the row belongs to no sequence
        for (int chunk = lane; chunk < kRowChunks; chunk += 32)
            if (kRotary && head >= growing)
                rotate_query(p, rows, head - growing, i, chunk);
            else
                append_chunk(p, head < heads_kv, rows, head % heads_kv, i, chunk);
    }
}

// Sequences with a batch each. The host ensures that all rows can be counted in 32 bits, so the divisions are short.
template <int kBlockThreads> __device__ __forceinline__ void append_batches(const Params &p)
{
    const uint32 heads_kv = p.heads_q / p.group, new_count = p.features.new_count;
    const uint32 new_rows = p.batch * new_count * heads_kv;
    const uint32 heads_q = p.heads_q, seq_q = p.seq_q;
    const uint32 rows = kGrowing * new_rows + (kRotary ? p.batch * seq_q * heads_q : 0);
    const int64 step = int64(gridDim.x) * kBlockThreads;
    for (int64 i = int64(blockIdx.x) * kBlockThreads + threadIdx.x; i < int64(rows) * kRowChunks; i += step) {
        const int chunk = i % kRowChunks;
        uint32 row = i / kRowChunks;
        if (kRotary && row >= kGrowing * new_rows) {
            row -= kGrowing * new_rows;
            const uint32 coord = row / heads_q;
            rotate_query(p, NewRows(p, coord / seq_q), row % heads_q, coord % seq_q, chunk);
            continue;
        }
        const bool is_key = row < new_rows;
        row -= is_key ? 0 : new_rows;
        const uint32 coord = row / heads_kv;
        append_chunk(p, is_key, NewRows(p, coord / new_count), row % heads_kv, coord % new_count, chunk);
    }
}

// The kernel.
template <int kBlockThreads> __device__ __forceinline__ void prepare(const Params &p)
{
    if constexpr (kVarlen)
        append_packed<kBlockThreads>(p);
    else
        append_batches<kBlockThreads>(p);
}
