#pragma once
#include "hopper/tma.cuh"
#include "lib/ptx.cuh"

// ---- the mbarriers of the forward kernel in shared memory -----------------------------------------------------
//
// Named barriers are used, too: from 1 on, one for each consumer warpgroup's turn (ping-pong), then one for its rows of
// Q, and one that all share, for rows of V that are cleared.

// Warps that arrive at q(group).empty: the four of a consumer warpgroup, and the warp that loads its bias if work tiles
// come from the counter.
constexpr int kQReaders = kBiasStaged && kCounted ? 5 : 4;

struct Barriers {
    uint32 smem;

    __device__ __forceinline__ StageBarriers q(int group) const
    {
        const uint32 full = smem + kBarrierArea + group * 16;
        return {full, full + 8};
    }

    __device__ __forceinline__ StageBarriers k(int stage) const
    {
        const uint32 full = smem + kBarrierArea + kGroups * 16 + stage * 32;
        return {full, full + 8};
    }

    __device__ __forceinline__ StageBarriers v(int stage) const
    {
        const uint32 before = k(stage).full;
        return {before + 16, before + 24};
    }

    // The number of the work tile that the rows of Q belong to (kCounted).
    __device__ __forceinline__ uint32 number(int group) const
    {
        return smem + kNumberArea + group * 4;
    }

    // Returns the number of the work tile after the one with this parity. Called by whole warps.
    __device__ __forceinline__ unsigned next_number(int group, uint32 parity) const
    {
        barrier_wait(q(group).full, parity ^ 1);
        const unsigned next = __float_as_uint(load_shared_4(number(group)));
        __syncwarp();  // all lanes have read it before one of them releases it
        return next;
    }

    __device__ __forceinline__ void init() const
    {
        for (int group = 0; group < kGroups; group++) {
            barrier_init(q(group).full, 1);
            barrier_init(q(group).empty, kQReaders);
        }
        for (int stage = 0; stage < kStages; stage++) {
            barrier_init(k(stage).full, 1);
            barrier_init(v(stage).full, 1);
            barrier_init(k(stage).empty, kGroups * 4);
            barrier_init(v(stage).empty, kGroups * 4);
        }
        barrier_init_fence();
    }
};
