#pragma once
#include "features/params.cuh"

// Returns x, limited to [least, most].
__device__ __forceinline__ int between(int least, int x, int most)
{
    return max(least, min(x, most));
}
