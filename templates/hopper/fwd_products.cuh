#pragma once
#include "hopper/wgmma.cuh"
#include "lib/mma.cuh"

// ---- the products of a warpgroup: S = Q K^T and O += P V ------------------------------------------------------------

// Starts S = Q K^T. If kSloped, one more k16 step adds slope * column from `slopes` and `columns`
// (slopes.cuh).
template <bool kSloped>
__device__ __forceinline__ void start_scores(float (&s)[1][kColTiles][4], uint32 q_smem, uint32 k_smem,
                                             const uint32 (&slopes)[4], uint64 columns)
{
    const uint64 a = tile_descriptor(q_smem, 0), b = tile_descriptor(k_smem, 0);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDepth; step++)
        Wgmma<kBc>::multiply<0, 0>(s, a + (step / 4 * kQPageBytes + step % 4 * 32) / 16,
                                   b + (step / 4 * kTilePageBytes + step % 4 * 32) / 16,
                                   kBiasInAccumulator ? 1 : step > 0);
    if constexpr (kSloped)
        Wgmma<kBc>::multiply<0>(s, slopes, columns, 1);
    wgmma_commit();
}

// Starts O += P V. P is in registers.
__device__ __forceinline__ void start_output(float (&o)[1][kOutTiles][4], const uint32 (&p)[kBc / 16][4], uint32 v_smem)
{
    const uint64 b = tile_descriptor(v_smem, kTilePageBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBc / 16; step++)
        Wgmma<kHeadDim>::add<1>(o, p[step], b + step * 16 * kPageRowBytes / 16);
    wgmma_commit();
}
