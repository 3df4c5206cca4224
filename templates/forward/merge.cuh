#pragma once
#include "forward/softmax.cuh"

// ---- O in fp32 (kPartial), merged with the partial result in memory (kMerges) ---------------------------------------
//
// Two results of one row over disjoint keys, each normalised, are merged as
//
//     lse = max + ln(sum of w_i)    O = sum of w_i O_i / sum of w_i    w_i = exp(lse_i - max)    max: of both lse_i
//
// A result whose LSE is -infinity has no weight, and its O is not read: it may hold anything.

// The weights of one row: of the result of this launch, and of the one in memory.
struct Merge {
    float own, old, lse;

    __device__ __forceinline__ Merge(float own_lse, float old_lse) : own(1.0f), old(0.0f), lse(own_lse)
    {
        if constexpr (kMerges) {
            const float most = fmaxf(own_lse, old_lse);
            if (old_lse == minus_infinity())
                return;
            own = expf(own_lse - most);
            old = expf(old_lse - most);
            const float sum = own + old;
            lse = most + logf(sum);
            own /= sum;
            old /= sum;
        }
    }

    // Writes columns of O, normalised: fp32, merged if the kernel merges.
    __device__ __forceinline__ void put(char *to, float2 x) const
    {
        float2 *const at = reinterpret_cast<float2 *>(to);
        if constexpr (kMerges) {
            const float2 y = old == 0.0f ? float2{0.0f, 0.0f} : *at;
            x = float2{own * x.x + old * y.x, own * x.y + old * y.y};
        }
        *at = x;
    }

    // The same for four columns.
    __device__ __forceinline__ void put(char *to, float4 x) const
    {
        float4 *const at = reinterpret_cast<float4 *>(to);
        if constexpr (kMerges) {
            const float4 y = old == 0.0f ? float4{0.0f, 0.0f, 0.0f, 0.0f} : *at;
            x = float4{own * x.x + old * y.x, own * x.y + old * y.y, own * x.z + old * y.z, own * x.w + old * y.w};
        }
        *at = x;
    }
};
