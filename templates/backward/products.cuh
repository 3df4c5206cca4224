#pragma once
#include "lib/mma.cuh"
#include "lib/ptx.cuh"
#include "lib/tile.cuh"

// ---- products of tiles in shared memory --------------------------------------------------------------------------
//
// Tiles of c are m16n8. load_a(step, a) loads the A fragments of a k16 step into a. Form: layout of the tiles' rows.

// Loads the A fragments of 16 * kM rows of a tile for one k16 step.
template <class Form = RowTile, int kM>
__device__ __forceinline__ void load_rows(uint32 (&a)[kM][4], uint32 smem, uint32 lane_rows, int step)
{
#pragma unroll
    for (int m = 0; m < kM; m++)
        ldmatrix_x4(a[m], smem + Form::pair_offset(lane_rows, step) + m * 16 * Form::kPitch);
}

// c += A B^T over the columns of two tiles of rows. B: 8 * kN rows from b_smem on.
template <class Form = RowTile, int kM, int kN, class LoadA>
__device__ __forceinline__ void product_of_rows(float (&c)[kM][kN][4], LoadA load_a, uint32 b_smem, uint32 lane_cols)
{
#pragma unroll
    for (int step = 0; step < Form::kChunks / 2; step++) {
        uint32 a[kM][4];
        load_a(step, a);
#pragma unroll
        for (int n = 0; n < kN; n += 2) {
            uint32 b[4];  // rows n * 8 ... + 15: b[0], b[1] of the first n8 tile, b[2], b[3] of the next
            ldmatrix_x4(b, b_smem + Form::pair_offset(lane_cols, step) + n * 8 * Form::kPitch);
#pragma unroll
            for (int m = 0; m < kM; m++) {
                mma_k16(c[m][n], a[m], b[0], b[1]);
                mma_k16(c[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// c += A B. B: kSteps * 16 rows of a tile from b_smem on. Columns are dealt out to kShares warps in pairs of n8 tiles:
// this warp has pairs first, first + kShares, ... b_lane: lane_offset_rows at pair `first`. Dealt out in this way, the
// XOR of a swizzle composes, because the bits of `first` and of kShares differ.
template <int kShares, int kSteps, int kM, int kN, class LoadA>
__device__ __forceinline__ void product_of_columns(float (&c)[kM][kN][4], LoadA load_a, uint32 b_smem, uint32 b_lane)
{
    static_assert((kShares & (kShares - 1)) == 0, "the bits of first and of kShares differ");
    using Form = TileForm<8 * kN * kShares>;
#pragma unroll
    for (int step = 0; step < kSteps; step++) {
        uint32 a[kM][4];
        load_a(step, a);
#pragma unroll
        for (int pair = 0; pair < kN / 2; pair++) {
            uint32 b[4];
            ldmatrix_x4_trans(b, b_smem + Form::pair_offset(b_lane, pair * kShares) + step * 16 * Form::kPitch);
#pragma unroll
            for (int m = 0; m < kM; m++) {
                mma_k16(c[m][2 * pair], a[m], b[0], b[1]);
                mma_k16(c[m][2 * pair + 1], a[m], b[2], b[3]);
            }
        }
    }
}
