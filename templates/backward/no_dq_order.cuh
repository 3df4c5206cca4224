#pragma once
#include "features/params.cuh"

// The empty policy: blocks add to dQ in any order.
__device__ __forceinline__ uint32 *turn_counters(const Params &)
{
    return nullptr;
}

template <class Coord> __device__ __forceinline__ uint32 *turn_counter(const Params &, const Coord &, int64, int)
{
    return nullptr;
}

__device__ __forceinline__ uint32 block_ticket(const Params &, uint32)
{
    return 0;
}

__device__ __forceinline__ void await_turn(const uint32 *, uint32, uint32, int) {}
