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

    __device__ __forceinline__ uint32 q_full(int stage) const
    {
        return smem + kBarrierArea + 16 + stage * 32;
    }

    __device__ __forceinline__ uint32 q_empty(int stage) const
    {
        return q_full(stage) + 8;
    }

    __device__ __forceinline__ uint32 do_full(int stage) const
    {
        return q_full(stage) + 16;
    }

    __device__ __forceinline__ uint32 do_empty(int stage) const
    {
        return q_full(stage) + 24;
    }

    // kByProduct: mbarriers of P^T. kDsBarriers: those of the stages of dS^T.
    __device__ __forceinline__ uint32 p_full() const
    {
        return smem + kExchangeArea;
    }

    __device__ __forceinline__ uint32 p_empty() const
    {
        return smem + kExchangeArea + 8;
    }

    __device__ __forceinline__ uint32 ds_full(int stage) const
    {
        return smem + kExchangeArea + 16 + stage * 16;
    }

    __device__ __forceinline__ uint32 ds_empty(int stage) const
    {
        return ds_full(stage) + 8;
    }

    // kAddsApart: mbarriers of dQ in shared memory.
    __device__ __forceinline__ uint32 dq_full() const
    {
        return smem + kExchangeArea;
    }

    __device__ __forceinline__ uint32 dq_empty() const
    {
        return smem + kExchangeArea + 8;
    }

    // kCountsApart: all warps have added dQ of the tile in this stage to its sums.
    __device__ __forceinline__ uint32 dq_added(int stage) const
    {
        return ds_full(kScoreStages) + stage * 8;
    }

    __device__ __forceinline__ void init() const
    {
        barrier_init(k_full(), 1);
        barrier_init(v_full(), 1);
        if constexpr (kByProduct) {
            barrier_init(p_full(), 4);
            barrier_init(p_empty(), 4);
        }
        if constexpr (kAddsApart) {
            barrier_init(dq_full(), kWarps);
            barrier_init(dq_empty(), 1);
        }
        for (int stage = 0; stage < kStages; stage++) {
            barrier_init(q_full(stage), 1);
            barrier_init(do_full(stage), 1);
            barrier_init(q_empty(stage), kReaders);
            barrier_init(do_empty(stage), kReaders);
            if constexpr (kDsBarriers) {
                barrier_init(ds_full(stage), kScoreWriters);
                barrier_init(ds_empty(stage), kScoreReaders);
            }
            if constexpr (kCountsApart)
                barrier_init(dq_added(stage), 4);
        }
        barrier_init_fence();
    }
};
