#pragma once
#include "fp32/tf32_product.cuh"
#include "fp32/tile.cuh"
#include "lib/ptx.cuh"

// ---- products: three of TF32 for one of fp32; SM 8.0 and newer ------------------------------------------------------
//
// tf32_product.cuh says how exact they are.
//
// Policy; the other one is ffma.cuh. Fragments of m16n8k8, with lane = 4 * quad_row + quad_lane: A has the numbers of
// rows quad_row and quad_row + 8 at depth quad_lane and quad_lane + 4. An 8x8 matrix of 16-bit elements is an 8x4
// matrix of fp32 numbers, so ldmatrix gives each lane its own.

static_assert(kBc % 16 == 0, "ldmatrix reads 16 keys");

// S += Q K^T of one tile. q_smem: this warp's rows.
__device__ __forceinline__ void product_qk(ScoreTile &s, uint32 q_smem, uint32 k_smem, int lane)
{
    const uint32 rows = q_smem + RowTile::lane_offset_rows(lane), cols = k_smem + RowTile::lane_offset_cols(lane);
#pragma unroll 2
    for (int step = 0; step < kHeadDim / 8; step++) {
        Split a[kRowTiles][4];
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
            uint32 x[4];
            ldmatrix_x4(x, rows + step * 32 + m * 16 * kPitch);
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = Split(x[i]);
        }
#pragma unroll
        for (int n = 0; n < kColTiles; n += 2) {
            uint32 x[4];
            ldmatrix_x4(x, cols + step * 32 + n * 8 * kPitch);
            const Split b[4] = {Split(x[0]), Split(x[1]), Split(x[2]), Split(x[3])};
#pragma unroll
            for (int m = 0; m < kRowTiles; m++) {
                multiply(s[m][n], a[m], b[0], b[1]);
                multiply(s[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// O += P V of one tile. A lane has P of the keys 2 quad_lane and 2 quad_lane + 1 of eight, so these keys take the
// places of depth quad_lane and quad_lane + 4, in P and in V.
__device__ __forceinline__ void product_pv(OutputTile &o, const ScoreTile &p, uint32 v_smem, int lane)
{
    const uint32 values = v_smem + lane % 4 * 2 * kValuePitch + lane / 4 * 4;
#pragma unroll
    for (int step = 0; step < kColTiles; step++) {
        Split a[kRowTiles][4];
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = Split(__float_as_uint(p[m][step][i % 2 * 2 + i / 2]));
#pragma unroll
        for (int n = 0; n < kOutTiles; n++) {
            const uint32 at = values + step * 8 * kValuePitch + n * 32;
            const Split b0(__float_as_uint(load_shared_4(at))), b1(__float_as_uint(load_shared_4(at + kValuePitch)));
#pragma unroll
            for (int m = 0; m < kRowTiles; m++)
                multiply(o[m][n], a[m], b0, b1);
        }
    }
}
