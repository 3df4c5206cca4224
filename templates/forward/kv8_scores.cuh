#pragma once
#include "forward/kv8_scales.cuh"
#include "forward/key_rows.cuh"
#include "lib/bytes.cuh"
#include "lib/mma.cuh"

// ---- S = Q K^T with K in 8 bits -------------------------------------------------------------------------------------
//
// Policy of kernels whose K and V are in 8 bits. ldmatrix gives a lane four neighbouring columns of each 16 of a row of
// K, 4 t ... 4 t + 3 with t = lane % 4. They become elements in registers. The fragments of Q are permuted once, so
// that they have the same columns. The scale of a key multiplies its scores.

static_assert(kQInRegisters && kParts == 1 && !kVInK && !kInt8Scores, "Q is permuted once");

struct Queries {
    QueryFragments fragments;  // in the order of K's columns
};

// Permutes the columns of a row in a fragment. low, high: columns 2 t, 2 t + 1 and 8 + 2 t, 9 + 2 t, which become
// columns 4 t, 4 t + 1 and 4 t + 2, 4 t + 3.
__device__ __forceinline__ void permute_row(uint32 &low, uint32 &high, int lane)
{
    uint32 ordered[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int from = (2 * lane + i) % 4;
        const uint32 x = __shfl_sync(0xffffffffu, low, from, 4), y = __shfl_sync(0xffffffffu, high, from, 4);
        ordered[i] = lane % 4 < 2 ? x : y;
    }
    low = ordered[0];
    high = ordered[1];
}

template <bool kInSoftmax>
__device__ __forceinline__ Queries make_queries(const QueryFragments &q_frag, const Params &, const BlockCoord &,
                                                uint32, int lane)
{
    Queries q;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int step = 0; step < kDepth; step++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                q.fragments[m][step][e] = q_frag[m][step][e];
            permute_row(q.fragments[m][step][0], q.fragments[m][step][2], lane);
            permute_row(q.fragments[m][step][1], q.fragments[m][step][3], lane);
        }
    return q;
}

// S += Q K^T for one tile, without the scales.
template <class AfterStep>
__device__ __forceinline__ void product_qk(float (&s)[kRowTiles][kColTiles][4], const Queries &q, uint32, uint32 k_smem,
                                           uint32, uint32 lane_cols, AfterStep after_step)
{
#pragma unroll
    for (int step = 0; step < KeyTile::kChunks / 2; step++) {  // k32
#pragma unroll
        for (int n = 0; n < kColTiles; n += 2) {
            uint32 b[4];  // columns 0 ... 15 and 16 ... 31 of n8 tile n, then of n + 1
            ldmatrix_x4(b, k_smem + KeyTile::pair_offset(lane_cols, step) + n * 8 * KeyTile::kPitch);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int k16 = 2 * step + i % 2;
                if (k16 >= kDepth)  // zeros after the last column
                    continue;
                const uint32 low = bytes_to_elements<0, 1>(b[i]), high = bytes_to_elements<2, 3>(b[i]);
#pragma unroll
                for (int m = 0; m < kRowTiles; m++)
                    mma_k16(s[m][n + i / 2], q.fragments[m][k16], low, high);
            }
        }
        after_step(step);
    }
}

// The scales are read when the tile is there.
struct KeyScale {
    __device__ __forceinline__ KeyScale(const Queries &, int) {}
};

// Makes scores of the products.
template <bool kInSoftmax, bool kMasked>
__device__ __forceinline__ ScoresThemselves scale_scores(float (&s)[kRowTiles][kColTiles][4], const Queries &,
                                                         const KeyScale &, uint32 k_smem, int lane)
{
#pragma unroll
    for (int n = 0; n < kColTiles; n++) {
        float2 scale = read_scales(k_smem + kKeyScales + scale_offset(n * 8) + lane % 4 * 8);
        scale.x *= kByteFactor;
        scale.y *= kByteFactor;
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                s[m][n][2 * h] *= scale.x;
                s[m][n][2 * h + 1] *= scale.y;
            }
    }
    return {};
}

template <bool kInSoftmax, class... Any> __device__ __forceinline__ void end_scores(const Any &...) {}
