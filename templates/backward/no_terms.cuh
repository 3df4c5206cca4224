#pragma once
#include "backward/scores.cuh"

// ---- terms: none --------------------------------------------------------------------------------------------------
constexpr bool kTerms = false;

struct Terms {
    __device__ __forceinline__ Terms(const Params &, int, int) {}

    template <bool kBefore> __device__ __forceinline__ float term(const Params &, float, int, int, int) const
    {
        return 0.0f;
    }
};

template <bool kBefore> __device__ __forceinline__ void add_terms(Scores &, const Params &, const Terms &, int, int) {}
