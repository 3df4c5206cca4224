#pragma once
#include "forward/coord.cuh"

// The empty policy: K and V are loaded as they are.
__device__ __forceinline__ const char *rounded_keys(const Params &, int64)
{
    return nullptr;
}

__device__ __forceinline__ const char *rounded_values(const Params &, int64)
{
    return nullptr;
}

template <class... Any> __device__ __forceinline__ int64 number_of_tile(const Any &...)
{
    return 0;
}
