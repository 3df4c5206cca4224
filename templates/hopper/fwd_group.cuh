#pragma once
#include "hopper/fwd_barriers.cuh"
#include "hopper/stages.cuh"
#include "hopper/wgmma.cuh"

// ---- the state of a consumer warpgroup, kept from one work tile to the next -------------------------------------

// Ping-pong: the order in which warpgroups start their products (kPingPong).
struct PingPong {
    int group;
    bool may_start;  // the first warpgroup starts first, without a wait

    __device__ __forceinline__ explicit PingPong(int group) : group(group), may_start(group == 0) {}

    // Waits until the warpgroup before this one has started its products.
    __device__ __forceinline__ void take()
    {
        if (kPingPong && !may_start)
            named_barrier(1 + group, 256);
        may_start = false;
    }

    __device__ __forceinline__ void pass()
    {
        int next = group + 1;
        if constexpr (kBiasInAccumulator)
            asm volatile("" : "+r"(next));  // computed again, because no register is left to keep it
        if (kPingPong)
            named_barrier_arrive(1 + next % kGroups, 256);
    }

    // At the end: takes the turn that the last warpgroup passed on, so that the barrier is balanced.
    __device__ __forceinline__ void finish()
    {
        if (group == 0 && !may_start)
            take();
    }
};

// The state of a consumer warpgroup.
struct Group {
    int index, lane, warp_row;  // warp_row: this warp's first row in the block
    Stage k, v;
    PingPong ping_pong;
    BiasStages side;

    __device__ __forceinline__ Group(int index, uint32 smem)
        : index(index), lane(threadIdx.x % 32), warp_row(threadIdx.x / 32 * 16), ping_pong(index), side(smem, index)
    {
    }

    __device__ __forceinline__ void release_q(const Barriers &barriers) const
    {
        barrier_arrive_by(lane, barriers.q(index).empty);
    }
};
