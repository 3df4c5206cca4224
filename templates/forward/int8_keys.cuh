#pragma once
#include "forward/coord.cuh"
#include "lib/rounding.cuh"

// ---- K in 8-bit integers: where it lies, and how numbers are rounded ---------------------------------------------
//
// quantise.cuh writes it to the workspace before the main kernel, which reads it by int8_scores.cuh:
//
//     keys     [Hkv][tiles of all sequences][kBc][kKeyBytes]
//     means    [B][Hkv][kKeyBytes], fp32: a mean row of the sequence's keys, which was subtracted
//     scales   [Hkv][tiles of all sequences][kScaleGroups][4], fp32
//     counts   [Hkv][tiles of all sequences][warps of a block], of what rounding lost; no kernel reads them
//
// p.partial is the first, p.partial_lse the second. A row is as the tensor's row, with zeros after its last column and
// after the sequence's last key. Its columns are permuted within 16, so that the fragments of Q need no shuffles: byte
// 4 t + i is column 2 t + i % 2 + i / 2 * 8. Rows are permuted if kWide (wide_key).
//
// A scale is of the keys of one lane of S, in one of kScaleGroups parts of the tile: rows r with equal r % 8 / 2. An
// element is its byte times the scale, plus the mean. A key with an infinity or a NaN makes its scale infinite or NaN,
// and so all scores of that scale's keys NaN.
constexpr int kKeyBytes = kElemBytes * kKeyColumns;
constexpr int kScaleGroups = kFp8Values ? kBc / 32 : 1, kScales = 4 * kScaleGroups;  // of a tile

// The group of row r of a tile.
__device__ __forceinline__ constexpr int scale_group(int r)
{
    return kScaleGroups == 1 ? 0 : r / 32;
}

// The tiles of all sequences of a key head. Any is Params, which only a template may ask for members that it lacks.
template <class Any> __device__ __forceinline__ int64 all_key_tiles(const Any &p)
{
    if constexpr (kVarlen)
        return p.features.total_k / kBc + p.batch;
    else
        return int64((p.seq_k + kBc - 1) / kBc) * p.batch;
}

// The number of a sequence's first tile among these.
template <class Any> __device__ __forceinline__ int64 first_key_tile(const Any &p, int batch)
{
    if constexpr (kVarlen)
        return first_tile(p.features.cu_seqlens_k, p.features.total_k, kBc, batch);
    else
        return int64((p.seq_k + kBc - 1) / kBc) * batch;
}

// The same among the tiles of all heads, of a block's sequence and key head.
template <class Coord> __device__ __forceinline__ int64 first_tile_of(const Params &p, const Coord &coord, int kv_head)
{
    return kv_head * all_key_tiles(p) + first_key_tile(p, coord.batch);
}

__device__ __forceinline__ float *mean_key(const Params &p, int batch, int kv_head)
{
    return p.partial_lse + (int64(batch) * (p.heads_q / p.group) + kv_head) * kKeyBytes;
}

// The scales of a tile: its number among the tiles of all heads.
__device__ __forceinline__ float *key_scales(const Params &p, int64 tile)
{
    return mean_key(p, p.batch, 0) + tile * kScales;
}

// The counts of a tile, one for each warp that rounded it: numbers in the upper half, and how many of them became 0 in
// the lower half. fa2_read_rounding adds them up.
__device__ __forceinline__ uint32 *key_counts(const Params &p, int64 tile)
{
    const int64 all = all_key_tiles(p) * (p.heads_q / p.group);
    return reinterpret_cast<uint32 *>(key_scales(p, all)) + tile * (kQuantThreads / 32);
}

// The scale of a tile of V, if V is rounded, too. These come last.
__device__ __forceinline__ float *value_scale(const Params &p, int64 tile)
{
    return reinterpret_cast<float *>(key_counts(p, all_key_tiles(p) * (p.heads_q / p.group))) + tile;
}
