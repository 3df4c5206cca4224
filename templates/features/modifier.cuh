#pragma once
#include "features/params.cuh"
#include "lib/types.cuh"

// ---- what turns products of Q and K into scores, before terms are added and keys are hidden --------------------
//
// softcap: s = softcap * tanh(softmax_scale / softcap * (q k)). p.softcap_rate is the factor inside the tanh. The
// factor outside is part of the exponent: the host sets p.scale_log2 to softcap * log2(e).
constexpr bool kModified = kSoftcap;

// One instruction; its relative error is at most 2^-11 (PTX ISA).
__device__ __forceinline__ float tanh_approx(float x)
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Replaces scores by tanh(rate * score).
template <int kM, int kN> __device__ __forceinline__ void cap_scores(float (&s)[kM][kN][4], float rate)
{
    each_element(s, [=](float &x, int, int, int) { x = tanh_approx(x * rate); });
}

// Returns the derivative of the score with respect to the product, divided by softmax_scale. t: the tanh.
__device__ __forceinline__ float cap_slope(float t)
{
    return fmaf(-t, t, 1.0f);
}

// Modifies a tile of products.
template <int kM, int kN> __device__ __forceinline__ void modify_scores(float (&s)[kM][kN][4], const Params &p)
{
    if constexpr (kSoftcap)
        cap_scores(s, p.softcap_rate);
}

// Returns the derivative with respect to the product, divided by softmax_scale. score: as modified.
__device__ __forceinline__ float modifier_derivative(float score)
{
    return kSoftcap ? cap_slope(score) : 1.0f;
}
