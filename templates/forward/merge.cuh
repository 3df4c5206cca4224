#pragma once
#include "forward/softmax.cuh"

// ---- O in fp32 (kPartial), merged with the partial result in memory (kMerges), or merged and written in 16 bits
// (kCarry) -----------------------------------------------------------------------------------------------------------
//
// Two results of one row over disjoint keys, each normalised, are merged as
//
//     lse = max + ln(sum of w_i)    O = sum of w_i O_i / sum of w_i    w_i = exp(lse_i - max)    max: of both lse_i
//
// A result whose LSE is -infinity has no weight, and its O is not read: it may hold anything.

// Returns the row of O before. offset(strides): the row's first element; to: the row of O.
template <class AnyParams, class Offset>
__device__ __forceinline__ const char *old_row(const AnyParams &p, const char *to, Offset offset)
{
    if constexpr (kCarry)
        return reinterpret_cast<const char *>(p.features.carried + offset(p.features.carried_stride));
    else
        return to;
}

// Elements of 32 bits have no pack.
template <class Half> __device__ __forceinline__ void put_16_bits(char *to, float2 x)
{
    *reinterpret_cast<uint32 *>(to) = Half::pack(x.x, x.y);
}

template <class Half> __device__ __forceinline__ void put_16_bits(char *to, float4 x)
{
    *reinterpret_cast<uint2 *>(to) = uint2{Half::pack(x.x, x.y), Half::pack(x.z, x.w)};
}

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

    // Returns columns before, in fp32, of a row in memory. Numbers: float2 or float4.
    template <class Numbers> __device__ __forceinline__ Numbers read(const char *from) const
    {
        return old == 0.0f ? Numbers{} : *reinterpret_cast<const Numbers *>(from);
    }

    // Writes columns of O, normalised, and merged if the kernel merges. y: what read returned.
    __device__ __forceinline__ void put(char *to, float2 y, float2 x) const
    {
        if constexpr (kMerges)
            x = float2{own * x.x + old * y.x, own * x.y + old * y.y};
        if constexpr (kCarry)
            put_16_bits<Elem>(to, x);
        else
            *reinterpret_cast<float2 *>(to) = x;
    }

    // The same for four columns.
    __device__ __forceinline__ void put(char *to, float4 y, float4 x) const
    {
        if constexpr (kMerges)
            x = float4{own * x.x + old * y.x, own * x.y + old * y.y, own * x.z + old * y.z, own * x.w + old * y.w};
        if constexpr (kCarry)
            put_16_bits<Elem>(to, x);
        else
            *reinterpret_cast<float4 *>(to) = x;
    }
};
