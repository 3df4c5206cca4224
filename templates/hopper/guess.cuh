#pragma once
#include "forward/softmax.cuh"
#include "hopper/wgmma.cuh"
#include "lib/mma.cuh"
#include "lib/ptx.cuh"

// ---- P by the maxima so far -----------------------------------------------------------------------------------
//
// Once a row has seen a tile, its maximum hardly grows, and P may be larger than 1 by as much as an element of 16 bits
// holds. So tiles without a mask are not searched for maxima: P is made by those that rows have, and its sums, which
// are wanted anyway, say whether one was too small. Then, which is rare, the warp makes S again, by itself, and goes
// the usual way: P does not tell S, it may be infinite.

// The most that a lane's sum of P in a row may be, and so each element: fp16 holds twice as much, and fp32 has room for
// O then, of V up to 2^60.
constexpr float kMostGuessed = kBf16 ? 0x1p40f : 0x1p15f;

// S becomes P by the maxima so far, and the sums grow. False, in all lanes of the warp: S is lost, nothing else has
// changed.
__device__ __forceinline__ bool guess_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row, float scale_log2,
                                           const float (&offset)[kRowTiles][2])
{
    constexpr int m = 0;
    float sum[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float max = kAlibiOffsets ? row.max[m][h] - offset[m][h] : row.max[m][h];
        const float shift = max * scale_log2;
#pragma unroll
        for (int n = 0; n < kColTiles; n++)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++) {
                s[m][n][e] = exp2_approx(fmaf(s[m][n][e], scale_log2, -shift));
                sum[h] = n == 0 && e == 2 * h ? s[m][n][e] : sum[h] + s[m][n][e];
            }
    }
    // NaN is not: it counts as wrong.
    const bool right = __all_sync(0xffffffffu, sum[0] <= kMostGuessed && sum[1] <= kMostGuessed);
    if (right)
#pragma unroll
        for (int h = 0; h < 2; h++)
            row.sum[m][h] += sum[h];
    return right;
}

__device__ __forceinline__ void clear_scores(float (&s)[kRowTiles][kColTiles][4])
{
#pragma unroll
    for (int n = 0; n < kColTiles; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[0][n][e] = 0.0f;
}

// Q K^T of a warp's 16 rows, of its group's that begin at q_smem, added to s: by this warp, without its group.
__device__ __forceinline__ void add_products(float (&s)[kRowTiles][kColTiles][4], uint32 q_smem, uint32 k_smem)
{
    const int thread = thread_index(), lane = thread % 32;  // addresses are found anew: they are hardly ever wanted
    const int row = thread % 128 / 32 * 16 + lane % 16, key = lane / 16 * 8 + lane % 8;
    q_smem += row * kPageRowBytes + (lane / 16 ^ row % 8) * 16;
    k_smem += key * kPageRowBytes + (lane / 8 % 2 ^ key % 8) * 16;
#pragma unroll 1
    for (int step = 0; step < kDepth; step++) {
        const uint32 chunk = step % 4 * 32;
        uint32 a[4], b[4];
        ldmatrix_x4(a, (q_smem ^ chunk) + step / 4 * kQPageBytes);
#pragma unroll
        for (int n = 0; n < kColTiles; n += 2) {
            ldmatrix_x4(b, (k_smem ^ chunk) + step / 4 * kTilePageBytes + n * 8 * kPageRowBytes);
            mma_k16(s[0][n], a, b[0], b[1]);
            mma_k16(s[0][n + 1], a, b[2], b[3]);
        }
    }
    pin(s);  // K's words are used before its place is given back
}
