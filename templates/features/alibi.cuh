#pragma once
#include "features/params.cuh"

// ---- alibi: a bias that decreases linearly with the distance of the key from the query ------------------------
//
// Scores get -slope |p - j|, where p = query + seq_k - seq_q + distance_shift is the query's position and j the key.
// Here the term is in the unit of Q K^T, that is, divided by the scale.

__device__ __forceinline__ float alibi_slope(const Params &p, int batch, int head)
{
    return p.features.alibi_slopes[batch * p.features.alibi_stride + head] * p.features.inverse_scale;
}

// The term for p - j = base + step; step is a constant after unrolling. kBefore: base + step is not negative.
template <bool kBefore> __device__ __forceinline__ float alibi_term(float slope, float base, float step)
{
    if constexpr (kBefore)
        return fmaf(-slope, step, -slope * base);
    else
        return -slope * fabsf(base + step);
}
