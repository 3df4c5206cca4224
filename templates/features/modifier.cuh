#pragma once
#include "features/params.cuh"
#include "features/softcap.cuh"

// ---- what turns products of Q and K into scores, before terms are added and keys are hidden --------------------
constexpr bool kModified = kSoftcap;

// Modifies a tile of products.
template <int kM, int kN> __device__ __forceinline__ void modify_scores(float (&s)[kM][kN][4], const Params &p)
{
    if constexpr (kSoftcap)
        cap_scores(s, p.softcap_rate);
}

// Returns the derivative with respect to the product, divided by softmax_scale. score: as modified.
__device__ __forceinline__ float modifier_slope(float score)
{
    return kSoftcap ? cap_slope(score) : 1.0f;
}
