#pragma once
#include "forward/coord.cuh"

// ---- terms: none --------------------------------------------------------------------------------------------------
constexpr bool kTerms = false, kBiasAhead = false, kTermsFirst = false, kSkips = false;

// The empty policy: nothing is added to scores.
struct Terms {
    __device__ __forceinline__ Terms(const Params &, const BlockCoord &, int, int) {}

    template <bool kMasked, bool kAdd>
    __device__ __forceinline__ bool apply(float (&)[kRowTiles][kColTiles][4], int) const
    {
        return true;
    }

    template <bool kMasked> __device__ __forceinline__ void load(uint32 (&)[kRowTiles][2][kColTiles], int) const {}

    template <bool kMasked>
    __device__ __forceinline__ void add(float (&)[kRowTiles][kColTiles][4], const uint32 (&)[kRowTiles][2][kColTiles],
                                        int) const
    {
    }

    __device__ __forceinline__ void add_columns(float (&)[kRowTiles][kColTiles][4], float (&)[kRowTiles][2], int) const
    {
    }
};
