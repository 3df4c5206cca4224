#pragma once
#include "lib/types.cuh"

// ---- softcap: scores stay between -softcap and softcap ------------------------------------------------
//
// s = softcap * tanh(softmax_scale / softcap * (q k)). The factor before the tanh is p.softcap_rate; the one
// after it is that of the exponent: the host sets p.scale_log2 to softcap * log2(e).

// One instruction; its error is at most 2^-11 of the result (PTX ISA).
__device__ __forceinline__ float tanh_approx(float x)
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Tiles of products become the tanh.
template <int kM, int kN> __device__ __forceinline__ void cap_scores(float (&s)[kM][kN][4], float rate)
{
#pragma unroll
    for (int m = 0; m < kM; m++)
#pragma unroll
        for (int n = 0; n < kN; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[m][n][e] = tanh_approx(s[m][n][e] * rate);
}

// How fast the score grows with the product, over softmax_scale; t: the tanh.
__device__ __forceinline__ float cap_slope(float t)
{
    return fmaf(-t, t, 1.0f);
}
