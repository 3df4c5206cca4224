#pragma once
#include "forward/coord.cuh"

// ---- terms: none --------------------------------------------------------------------------------------------------
constexpr bool kTerms = false, kBiasAhead = false, kTermsFirst = false, kSkips = false;

// The empty policy: nothing is added to scores.
struct Terms {
    __device__ __forceinline__ Terms(const Params &, const BlockCoord &, int, int) {}

    template <bool kMasked, bool kAdd, class... Any> __device__ __forceinline__ bool apply(const Any &...) const
    {
        return true;
    }

    template <bool kMasked, class... Any> __device__ __forceinline__ void load(const Any &...) const {}

    template <bool kMasked, class... Any> __device__ __forceinline__ void add(const Any &...) const {}

    template <class... Any> __device__ __forceinline__ void add_columns(const Any &...) const {}
};
