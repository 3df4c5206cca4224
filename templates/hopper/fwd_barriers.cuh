#pragma once
#include "hopper/tma.cuh"
#include "lib/ptx.cuh"

// ---- where the barriers of a block are ---------------------------------------------------------------------------

// Warps that read what Q comes with: those of a warpgroup, and the one that loads its bias beside.
constexpr int kQReaders = kBiasStaged && kCounted ? 5 : 4;

struct Barriers {
    uint32 smem;

    __device__ __forceinline__ uint32 q_full(int group) const
    {
        return smem + kBarrierArea + group * 16;
    }

    __device__ __forceinline__ uint32 q_empty(int group) const
    {
        return q_full(group) + 8;
    }

    __device__ __forceinline__ uint32 k_full(int stage) const
    {
        return smem + kBarrierArea + kGroups * 16 + stage * 32;
    }

    __device__ __forceinline__ uint32 k_empty(int stage) const
    {
        return k_full(stage) + 8;
    }

    __device__ __forceinline__ uint32 v_full(int stage) const
    {
        return k_full(stage) + 16;
    }

    __device__ __forceinline__ uint32 v_empty(int stage) const
    {
        return k_full(stage) + 24;
    }

    // Which piece of work the rows of Q are of, if work is by a counter.
    __device__ __forceinline__ uint32 piece(int group) const
    {
        return smem + kPieceArea + group * 4;
    }

    // By a warp: the piece behind the one whose parity this is.
    __device__ __forceinline__ unsigned next_piece(int group, uint32 parity) const
    {
        barrier_wait(q_full(group), parity ^ 1);
        const unsigned next = __float_as_uint(load_shared_4(piece(group)));
        __syncwarp();  // all lanes have it before one of them says so
        return next;
    }

    __device__ __forceinline__ void init() const
    {
        for (int group = 0; group < kGroups; group++) {
            barrier_init(q_full(group), 1);
            barrier_init(q_empty(group), kQReaders);
        }
        for (int stage = 0; stage < kStages; stage++) {
            barrier_init(k_full(stage), 1);
            barrier_init(v_full(stage), 1);
            barrier_init(k_empty(stage), kGroups * 4);
            barrier_init(v_empty(stage), kGroups * 4);
        }
        barrier_init_fence();
    }
};
