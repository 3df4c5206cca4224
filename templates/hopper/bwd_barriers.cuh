#pragma once
#include "hopper/tma.cuh"

// ---- the mbarriers of the backward kernel in shared memory ----------------------------------------------------------
//
// Named barriers are used, too (0 is __syncthreads):
//
//     1    dS^T of all warps is there; rows after a sequence's end are cleared; the rows of dK or dV to write are there
//     3    every warp has read its last K and V
//
// kByProduct: 1, every warp has read its last K and V; 2 and 3, the rows of dV and of dK to write are there; 4, all
// warps have added to dQ of a tile.

struct Barriers {
    uint32 smem;

    __device__ __forceinline__ uint32 k_full() const
    {
        return smem + kBarrierArea;
    }

    __device__ __forceinline__ uint32 v_full() const
    {
        return smem + kBarrierArea + 8;
    }

    __device__ __forceinline__ StageBarriers q(int stage) const
    {
        const uint32 full = smem + kBarrierArea + 16 + stage * 32;
        return {full, full + 8};
    }

    __device__ __forceinline__ StageBarriers d_o(int stage) const
    {
        const uint32 of_q = q(stage).full;
        return {of_q + 16, of_q + 24};
    }

    // kByProduct: of P^T; kAddsApart: of dQ in shared memory.
    __device__ __forceinline__ StageBarriers exchange() const
    {
        return {smem + kExchangeArea, smem + kExchangeArea + 8};
    }

    // kDsBarriers: of the stages of dS^T.
    __device__ __forceinline__ StageBarriers ds(int stage) const
    {
        const uint32 full = smem + kExchangeArea + 16 + stage * 16;
        return {full, full + 8};
    }

    // kCountsApart: all warps have added dQ of the tile in this stage to its sums.
    __device__ __forceinline__ uint32 dq_added(int stage) const
    {
        return ds(kScoreStages).full + stage * 8;
    }

    __device__ __forceinline__ void init() const
    {
        barrier_init(k_full(), 1);
        barrier_init(v_full(), 1);
        if constexpr (kByProduct) {
            barrier_init(exchange().full, 4);
            barrier_init(exchange().empty, 4);
        }
        if constexpr (kAddsApart) {
            barrier_init(exchange().full, kWarps);
            barrier_init(exchange().empty, 1);
        }
        for (int stage = 0; stage < kStages; stage++) {
            barrier_init(q(stage).full, 1);
            barrier_init(d_o(stage).full, 1);
            barrier_init(q(stage).empty, kReaders);
            barrier_init(d_o(stage).empty, kReaders);
            if constexpr (kDsBarriers) {
                barrier_init(ds(stage).full, kScoreWriters);
                barrier_init(ds(stage).empty, kScoreReaders);
            }
            if constexpr (kCountsApart)
                barrier_init(dq_added(stage), 4);
        }
        barrier_init_fence();
    }
};
