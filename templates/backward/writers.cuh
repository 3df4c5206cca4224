#pragma once
#include "lib/ptx.cuh"

// ---- the threads that write dK and dV: all of a block; on wgmma the consumers, or one warpgroup of them --------

__device__ __forceinline__ unsigned writer()
{
    return kByProduct ? threadIdx.x % kWriters : threadIdx.x;
}

// A barrier for these threads.
__device__ __forceinline__ void writers_meet()
{
    if constexpr (kByProduct)
        named_barrier(2 + threadIdx.x / kWriters, kWriters);
    else if constexpr (kWgmma)
        named_barrier(1, kWriters);
    else
        __syncthreads();
}
