#pragma once
#include "forward/new_rows.cuh"
#include "lib/bytes.cuh"
#include "lib/rounding.cuh"

// ---- the kernel before the main one, with a cache in 8 bits: appends new keys and values, and rotates --------------
//
// New rows have 16 bits. A warp takes a whole row of a head, because its scale depends on all columns: a lane has eight
// of them. Keys are rotated first, and rounded to the dtype as without 8 bits.

static_assert(kRowChunks <= 32 && !kVInK, "a warp has a row");

// Rounds a row, eight columns per lane, and writes it with its scale.
__device__ __forceinline__ void write_rounded(const uint4 &x, uint2 *row, char *scale)
{
    const int lane = threadIdx.x % 32;
    const float2 pairs[] = {unpack2(x.x), unpack2(x.y), unpack2(x.z), unpack2(x.w)};
    uint32 most = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        most = max(most, max(absolute_bits(pairs[i].x), absolute_bits(pairs[i].y)));
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, apart));
    const RowRounding rounding = row_rounding_to(most);
    if (row != nullptr)
        *row = {rounding.bytes(pairs[0], pairs[1]), rounding.bytes(pairs[2], pairs[3])};
    if (lane == 0)
        rounding.put(scale);
}

// Writes new row i of K or V of a sequence. All lanes of the warp have the same row.
__device__ __forceinline__ void append_row(const Params &p, bool is_key, const NewRows &rows, int head, int i)
{
    const int lane = threadIdx.x % 32, position = rows.before + i;
    if (position >= rows.end)
        return;  // no room for the key
    const NewRow row(p, is_key, rows, head, i);
    if (row.to == nullptr)
        return;
    const Strides &of_scales = is_key ? p.features.k_scale_stride : p.features.v_scale_stride;
    char *scale =
        cache_at<kRowScaleBytes>(p, reinterpret_cast<const char *>(is_key ? p.features.k_scale : p.features.v_scale),
                                 of_scales, rows, head, position);
    const bool has_columns = lane < (is_key ? kRowChunks : kValueChunks);
    uint4 x = {};
    if (has_columns)
        x = kRotary && is_key ? rotated_chunk(p, row.from, lane, position) : load_chunk(row.from, lane);
    write_rounded(x, has_columns ? reinterpret_cast<uint2 *>(row.to) + lane : nullptr, scale);
}

// The kernel. Its rows are, for each new key or query of each sequence, those of all heads of K, of V and, with rotary,
// of Q.
template <int kBlockThreads> __device__ __forceinline__ void prepare(const Params &p)
{
    constexpr int kBlockWarps = kBlockThreads / 32;
    const int lane = threadIdx.x % 32, heads_kv = p.heads_q / p.group, growing = kGrowing * heads_kv;
    const int heads = kRotary ? growing + p.heads_q : growing;
    const int each = kRotary ? max(p.features.new_count, p.seq_q) : p.features.new_count;  // unless packed
    const int64 count = (kVarlen ? int64(p.features.total_q) : int64(p.batch) * each) * heads;
    for (int64 at = int64(blockIdx.x) * kBlockWarps + threadIdx.x / 32; at < count;
         at += int64(gridDim.x) * kBlockWarps) {
        const int own = at / heads, head = at % heads;
        const NewRows rows(p, kVarlen ? sequence_of_row(p, own) : own / each);
        const int i = kVarlen ? own - rows.sequence.first_q : own % each;
        const bool is_query = kRotary && head >= growing;
        const int end = kVarlen ? rows.sequence.seq_q : is_query ? p.seq_q : p.features.new_count;
        if (i < 0 || i >= end)
            continue;  // the row belongs to no sequence, or there are fewer of this kind
        if (!is_query)
            append_row(p, head < heads_kv, rows, head % heads_kv, i);
        else if (lane < kRowChunks)
            rotate_query(p, rows, head - growing, i, lane);
    }
}
