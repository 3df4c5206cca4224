#pragma once
#include "hopper/split_exchange.cuh"
#include "hopper/wgmma.cuh"

// ---- the products of a warpgroup: S = Q K^T of its keys, and its columns of O += P V --------------------------------

// Hides from the compiler how the address was computed. Otherwise it keeps 36 addresses of Q in registers; now it
// computes them for each tile.
__device__ __forceinline__ uint32 computed_again(uint32 address)
{
    asm volatile("" : "+r"(address));
    return address;
}

// Reads the first columns of this warp's rows of Q into registers.
__device__ __forceinline__ void read_q(uint32 (&q)[kQSteps][4], uint32 smem, int warp_row, int lane)
{
    const int row = warp_row + lane % 16;
#pragma unroll
    for (int step = 0; step < kQSteps; step++)
        ldmatrix_x4(q[step],
                    smem + step / 4 * kQPageBytes + row * kPageRowBytes + ((step % 4 * 2 + lane / 16) ^ row % 8) * 16);
}

// Starts S = Q K^T. The first columns of Q are in registers.
__device__ __forceinline__ void start_scores(float (&s)[1][kColTiles][4], const uint32 (&q)[kQSteps][4], uint32 q_smem,
                                             uint32 k_smem)
{
    const uint64 a = tile_descriptor(q_smem, 0), b = tile_descriptor(k_smem, 0);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDepth; step++) {
        const uint64 b_step = b + (step / 4 * kTilePageBytes + step % 4 * 32) / 16;
        if (step < kQSteps)
            Wgmma<kOwnKeys>::multiply<0>(s, q[step], b_step, step > 0);
        else
            Wgmma<kOwnKeys>::multiply<0, 0>(s, a + (step / 4 * kQPageBytes + step % 4 * 32) / 16, b_step, step > 0);
    }
    wgmma_commit();
}

// Starts O += P V. v_smem: the first key of the tile.
__device__ __forceinline__ void start_output(float (&o)[1][kOutTiles][4], const uint32 (&own)[kOwnSteps][4],
                                             const uint32 (&other)[kOwnSteps][4], int part, uint32 v_smem)
{
    constexpr int kStep = 16 * kPageRowBytes / 16;
    const uint64 b = tile_descriptor(v_smem, kTilePageBytes);
    const uint64 b_own = b + part * kOwnSteps * kStep, b_other = b + (1 - part) * kOwnSteps * kStep;
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kOwnSteps; step++)
        Wgmma<kOutTiles * 8>::add<1>(o, own[step], b_own + step * kStep);
#pragma unroll
    for (int step = 0; step < kOwnSteps; step++)
        Wgmma<kOutTiles * 8>::add<1>(o, other[step], b_other + step * kStep);
    wgmma_commit();
}
