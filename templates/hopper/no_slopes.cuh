#pragma once
#include "lib/types.cuh"

// The empty policy: no term is a part of S = Q K^T.
__device__ __forceinline__ void put_extra_k_columns(uint32) {}

__device__ __forceinline__ uint64 extra_k_columns(uint32)
{
    return 0;
}

template <class AnyTerms> __device__ __forceinline__ void slope_columns(const AnyTerms &, int, uint32 (&)[4]) {}

__device__ __forceinline__ void add_slopes(float (&)[kRowTiles][kColTiles][4], const uint32 (&)[4]) {}
