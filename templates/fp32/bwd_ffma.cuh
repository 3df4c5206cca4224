#pragma once
#include "backward/gradient.cuh"
#include "backward/scores.cuh"
#include "fp32/bwd_tile.cuh"
#include "fp32/ffma_product.cuh"

// ---- products of backward by FMA instructions; every SM -------------------------------------------------------------
//
// Policy; the other one is bwd_tf32.cuh. A lane has the elements of S^T that it has of an accumulator of m16n8
// (backward/scores.cuh). Of dK, dV and dQ it has squares of 4 x 4: lane = 8 * row + column, over 16 rows and the 32
// columns of a group.

template <int kGroups> using KeySum = float[kKeyTiles][kGroups][4][4];  // [keys][columns]
using DqSum = float[kDqRows / 4][4];                                    // a group of columns: [queries][columns]

// The place of a key among those of a row of P or dS.
__device__ __forceinline__ int key_place(int key)
{
    return key;
}

__device__ __forceinline__ void add_multiples(float (&sum)[4], float x, const float4 &row)
{
    sum[0] = fmaf(x, row.x, sum[0]);
    sum[1] = fmaf(x, row.y, sum[1]);
    sum[2] = fmaf(x, row.z, sum[2]);
    sum[3] = fmaf(x, row.w, sum[3]);
}

// Offset of the four columns that a lane has of a group; the last ones if there are none.
template <int kColumns> __device__ __forceinline__ uint32 column_offset(int group, int lane)
{
    return min(group * 8 + lane % 8, kColumns / 4 - 1) * 16;
}

// sum += P^T dO, or dS^T Q. p_smem: P at this warp's keys; tile_smem: the queries. The warp has every kQueryWarps-th
// group of columns, from `first` on.
template <int kColumns, int kGroups>
__device__ __forceinline__ void add_to_keys(KeySum<kGroups> &sum, uint32 p_smem, uint32 tile_smem, int first, int lane)
{
    using Form = TileForm<kColumns>;
    const uint32 keys = p_smem + lane / 8 * 16;
    uint32 columns[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; g++)
        columns[g] = tile_smem + column_offset<kColumns>(g * kQueryWarps + first, lane);
#pragma unroll 2
    for (int query = 0; query < kBr; query++) {
        float4 x[kGroups];
#pragma unroll
        for (int g = 0; g < kGroups; g++)
            x[g] = load_shared_floats(columns[g] + query * Form::kPitch);
#pragma unroll
        for (int m = 0; m < kKeyTiles; m++) {
            const float4 p = load_shared_floats(keys + query * ScoreTile::kPitch + m * 64);
#pragma unroll
            for (int g = 0; g < kGroups; g++) {
                add_multiples(sum[m][g][0], p.x, x[g]);
                add_multiples(sum[m][g][1], p.y, x[g]);
                add_multiples(sum[m][g][2], p.z, x[g]);
                add_multiples(sum[m][g][3], p.w, x[g]);
            }
        }
    }
}

// A group of columns of dQ: sum = dS K. ds_smem: dS at this warp's first query.
__device__ __forceinline__ void compute_dq(DqSum &sum, uint32 ds_smem, uint32 k_smem, int group, int lane)
{
    const uint32 rows = ds_smem + lane / 8 * ScoreTile::kPitch, columns = k_smem + column_offset<kHeadDim>(group, lane);
#pragma unroll 1
    for (int key = 0; key < kBc; key += 4) {
        float4 k[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            k[i] = load_shared_floats(columns + (key + i) * kPitch);
#pragma unroll
        for (int r = 0; r < kDqRows / 4; r++) {
            const float4 ds = load_shared_floats(rows + r * 4 * ScoreTile::kPitch + key * 4);
            add_multiples(sum[r], ds.x, k[0]);
            add_multiples(sum[r], ds.y, k[1]);
            add_multiples(sum[r], ds.z, k[2]);
            add_multiples(sum[r], ds.w, k[3]);
        }
    }
}

// Adds a group of columns of dQ to memory. head: first element of the head; row: the warp's first row.
__device__ __forceinline__ void put_dq(const Params &p, float *head, int row, const DqSum &sum, int group, int lane)
{
    const int chunk = group * 8 + lane % 8;
#pragma unroll
    for (int r = 0; r < kDqRows / 4; r++) {
        const int own = row + r * 4 + lane / 8;
        const float x[4] = {sum[r][0] * p.scale, sum[r][1] * p.scale, sum[r][2] * p.scale, sum[r][3] * p.scale};
        if (own < p.seq_q && chunk < kHeadDim / 4)
            add_dq(head + own * p.dq_stride.seq + chunk * 4, x);
    }
}

// Writes rows of dK or dV, times scale. head: first element of the head; key: the warp's first one.
template <int kColumns, int kGroups>
__device__ __forceinline__ void put_keys(char *out, int64 head, const Strides &stride, int key, int end,
                                         const KeySum<kGroups> &sum, float scale, int first, int lane)
{
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64 own = key + m * 16 + lane / 8 * 4 + i;
            if (own >= end)
                continue;
            char *const to = out + (head + own * stride.seq) * 4;
#pragma unroll
            for (int g = 0; g < kGroups; g++) {
                const float(&x)[4] = sum[m][g][i];
                const int chunk = (g * kQueryWarps + first) * 8 + lane % 8;
                if (chunk < kColumns / 4)
                    put_fp32(to + chunk * 16, float4{x[0] * scale, x[1] * scale, x[2] * scale, x[3] * scale});
            }
        }
}
