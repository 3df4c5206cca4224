#pragma once
#include "features/modifier.cuh"
#include "lib/ptx.cuh"

// ---- P^T and dS^T ------------------------------------------------------------------------------------
//
// Scores are capped, get their terms, are turned into P, and masked. dS is P times (dP - delta) times the derivative of
// the cap.
//
// Fragments (PTX ISA, mma.m16n8k16), with lane = 4 * quad_row + quad_lane. An accumulator holds columns 2 * quad_lane
// and 2 * quad_lane + 1 of a 16x8 tile: of row quad_row in c[0], c[1], and of row quad_row + 8 in c[2], c[3]. Rows are
// keys and columns are queries, so values per query are read in pairs from shared memory.

using Scores = float[kKeyTiles][kQueryTiles][4];

// Turns S^T into P^T = 2^(scale_log2 * S - lse). lse_smem: LSE of this lane's first query.
__device__ __forceinline__ void scores_to_p(Scores &s, uint32 lse_smem, float scale_log2)
{
#pragma unroll
    for (int n = 0; n < kQueryTiles; n++) {
        const float2 lse = load_shared_8(lse_smem + n * 8 * 4);
        each_of<kKeyTiles, 4>(
            [&](int m, int e) { s[m][n][e] = exp2_approx(fmaf(s[m][n][e], scale_log2, e % 2 ? -lse.y : -lse.x)); });
    }
}

__device__ __forceinline__ void copy_scores(Scores &to, const Scores &from)
{
    each_element(to, [&](float &x, int m, int n, int e) { x = from[m][n][e]; });
}

// Multiplies P^T by the derivative of the scores. capped: S^T as modified.
__device__ __forceinline__ void multiply_derivatives(Scores &p, const Scores &capped)
{
    each_element(p, [&](float &x, int m, int n, int e) { x *= modifier_derivative(capped[m][n][e]); });
}

// Turns dP^T into dS^T = P^T * (dP^T - delta), without the softmax scale. p: P^T, already times the derivative of the
// scores; with kBiasGradient the caller multiplies dS^T instead.
__device__ __forceinline__ void dp_to_ds(Scores &dp, const Scores &p, uint32 delta_smem)
{
#pragma unroll
    for (int n = 0; n < kQueryTiles; n++) {
        const float2 delta = load_shared_8(delta_smem + n * 8 * 4);
        each_of<kKeyTiles, 4>(
            [&](int m, int e) { dp[m][n][e] = p[m][n][e] * (dp[m][n][e] - (e % 2 ? delta.y : delta.x)); });
    }
}
