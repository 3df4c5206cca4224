#pragma once
#include "lib/ptx.cuh"

// ---- who writes dK and dV: all threads of a block; on wgmma those that compute, or one warpgroup of them -------

__device__ __forceinline__ unsigned writer()
{
    return kByProduct ? threadIdx.x % kWriters : threadIdx.x;
}

// Orders what they do.
__device__ __forceinline__ void writers_meet()
{
    if constexpr (kByProduct)
        named_barrier(2 + threadIdx.x / kWriters, kWriters);
    else if constexpr (kWgmma)
        named_barrier(1, kWriters);
    else
        __syncthreads();
}
