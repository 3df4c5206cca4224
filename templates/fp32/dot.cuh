#pragma once
#include "lib/types.cuh"

// ---- the product of eight elements of O and dO, of fp32 -------------------------------------------------------------
//
// Policy; the other one is backward/dot.cuh.
__device__ __forceinline__ float dot_8(const char *a, const char *b, int chunk)
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float4 x = __ldg(reinterpret_cast<const float4 *>(a) + 2 * chunk + i);
        const float4 y = __ldg(reinterpret_cast<const float4 *>(b) + 2 * chunk + i);
        sum = fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, fmaf(x.w, y.w, sum))));
    }
    return sum;
}
