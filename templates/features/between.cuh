#pragma once
#include "features/params.cuh"

// x, kept between two bounds.
__device__ __forceinline__ int between(int least, int x, int most)
{
    return max(least, min(x, most));
}
