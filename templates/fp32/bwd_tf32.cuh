#pragma once
#include "backward/gradient.cuh"
#include "backward/scores.cuh"
#include "fp32/bwd_tile.cuh"
#include "fp32/tf32_product.cuh"

// ---- products of backward: three of TF32 for one of fp32; SM 8.0 and newer ------------------------------------------
//
// Policy; the other one is bwd_ffma.cuh. tf32_product.cuh says how exact they are. All sums are accumulators of m16n8.
// Where the depth of a product is rows in shared memory, rows 2 t and 2 t + 1 of eight take the places t and t + 4 of
// the depth: then loads of a warp are in different banks. dS of a row of queries lies in the order of these places.

constexpr int kTiles = kGroupColumns / 8;

template <int kGroups> using KeySum = float[kKeyTiles][kTiles * kGroups][4];
using DqSum = float[kDqRows / 16][kTiles][4];

static_assert(kQueryTiles % 2 == 0 && kAllHaveQueries && kDqRows % 16 == 0, "ldmatrix reads 16 queries");

__device__ __forceinline__ int key_place(int key)
{
    return key / 8 * 8 + key % 2 * 4 + key % 8 / 2;
}

// Offset of an n8 tile of a group; that of the last one if there is none.
template <int kColumns> __device__ __forceinline__ uint32 column_offset(int group, int tile)
{
    return min(group * kTiles + tile, kColumns / 8 - 1) * 32;
}

// sum += P^T dO, or dS^T Q. p_smem: P at this warp's keys; tile_smem: the queries. The warp has every kQueryWarps-th
// group of columns, from `first` on.
template <int kColumns, int kGroups>
__device__ __forceinline__ void add_to_keys(KeySum<kGroups> &sum, uint32 p_smem, uint32 tile_smem, int first, int lane)
{
    using Form = TileForm<kColumns>;
    const uint32 keys = p_smem + lane % 4 * 2 * ScoreTile::kPitch + key_place(lane / 4) * 4;
    const uint32 rows = tile_smem + lane % 4 * 2 * Form::kPitch + lane / 4 * 4;
#pragma unroll 1
    for (int step = 0; step < kBr / 8; step++) {
        Split a[kKeyTiles][4];
#pragma unroll
        for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = load_split(keys + (step * 8 + i / 2) * ScoreTile::kPitch + m * 64 + i % 2 * 32);
#pragma unroll
        for (int n = 0; n < kTiles * kGroups; n++)
            multiply_rows<kKeyTiles, kTiles * kGroups, Form::kPitch>(
                sum, n, a,
                rows + step * 8 * Form::kPitch + column_offset<kColumns>(n / kTiles * kQueryWarps + first, n % kTiles));
    }
}

// A group of columns of dQ: sum = dS K. ds_smem: dS at this warp's first query.
__device__ __forceinline__ void compute_dq(DqSum &sum, uint32 ds_smem, uint32 k_smem, int group, int lane)
{
    const uint32 queries = ds_smem + ScoreTile::lane_offset_rows(lane);
    const uint32 rows = k_smem + lane % 4 * 2 * kPitch + lane / 4 * 4;
#pragma unroll 1
    for (int step = 0; step < kBc / 8; step++) {
        Split a[kDqRows / 16][4];
#pragma unroll
        for (int m = 0; m < kDqRows / 16; m++)
            load_splits(a[m], queries + step * 32 + m * 16 * ScoreTile::kPitch);
#pragma unroll
        for (int n = 0; n < kTiles; n++)
            multiply_rows<kDqRows / 16, kTiles, kPitch>(sum, n, a,
                                                        rows + step * 8 * kPitch + column_offset<kHeadDim>(group, n));
    }
}

// Adds a group of columns of dQ to memory. head: first element of the head; row: the warp's first row.
__device__ __forceinline__ void put_dq(const Params &p, float *head, int row, const DqSum &sum, int group, int lane)
{
    each_of<kDqRows / 16, 4>([&](int m, int e) {
        const int own = row + m * 16 + e / 2 * 8 + lane / 4;
        float *const to = head + own * p.dq_stride.seq + lane % 4 * 2 + e % 2;
#pragma unroll
        for (int n = 0; n < kTiles; n++)
            if (own < p.seq_q && group * kTiles + n < kHeadDim / 8)
                add_global_4(to + (group * kTiles + n) * 8, sum[m][n][e] * p.scale);
    });
}

// Writes rows of dK or dV, times scale. head: first element of the head; key: the warp's first one.
template <int kColumns, int kGroups>
__device__ __forceinline__ void put_keys(char *out, int64 head, const Strides &stride, int key, int end,
                                         const KeySum<kGroups> &sum, float scale, int first, int lane)
{
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
        put_fp32_tile<kColumns>(out, head, stride, key + m * 16, end, sum[m], scale, lane,
                                [&](int n) { return (n / kTiles * kQueryWarps + first) * kTiles + n % kTiles; });
}
