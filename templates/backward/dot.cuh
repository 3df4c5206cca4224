#pragma once
#include "lib/mma.cuh"

// ---- the product of eight elements of O and dO, of 16 bits ----------------------------------------------------------
//
// Policy; the other one is fp32/dot.cuh.

__device__ __forceinline__ float dot_8(const uint4 &a, const uint4 &b)
{
    float sum = 0.0f;
    const uint32 x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 u = unpack2(x[i]), v = unpack2(y[i]);
        sum = fmaf(u.x, v.x, fmaf(u.y, v.y, sum));
    }
    return sum;
}

// The same of eight elements of two rows, from element 8 * chunk on.
__device__ __forceinline__ float dot_8(const char *a, const char *b, int chunk)
{
    return dot_8(__ldg(reinterpret_cast<const uint4 *>(a) + chunk), __ldg(reinterpret_cast<const uint4 *>(b) + chunk));
}
