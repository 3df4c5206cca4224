#pragma once
#include "forward/coord.cuh"

// The empty policy: K and V are loaded as they are.
__device__ __forceinline__ const char *rounded_tile(const Params &, int, int, int)
{
    return nullptr;
}

__device__ __forceinline__ int64 bytes_of_keys(const Params &)
{
    return 0;
}
