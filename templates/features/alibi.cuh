#pragma once
#include "features/params.cuh"

// ---- alibi: a key costs the more the farther it is from the query -------------------------------------
//
// Scores get -slope |p - j|, p = query + seq_k - seq_q. Here it is in the units of q k, divided by the scale.

__device__ __forceinline__ float alibi_slope(const Params &p, int batch, int head)
{
    return p.features.alibi_slopes[batch * p.features.alibi_stride + head] * p.features.inverse_scale;
}

// The term at p - j = base + step; step is a constant after unrolling. kBefore: that is not negative.
template <bool kBefore> __device__ __forceinline__ float alibi_term(float slope, float base, float step)
{
    if constexpr (kBefore)
        return fmaf(-slope, step, -slope * base);
    else
        return -slope * fabsf(base + step);
}
