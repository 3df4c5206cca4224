#pragma once
#include "forward/no_scales.cuh"
#include "forward/key_rows.cuh"

// ---- S = Q K^T of the elements as they are ---------------------------------------------------------------------
//
// Policy of kernels that multiply 16-bit elements of Q and K as they are in memory. Others: int8_scores.cuh,
// kv8_scores.cuh.
using Queries = QueryFragments;

template <bool kInSoftmax>
__device__ __forceinline__ const Queries &make_queries(const QueryFragments &q_frag, const Params &, const BlockCoord &,
                                                       uint32, int)
{
    return q_frag;
}

// Products need no scale.
struct KeyScale {
    __device__ __forceinline__ KeyScale(const Queries &, int) {}
};

template <bool kInSoftmax, bool kMasked, class... Any>
__device__ __forceinline__ ScoresThemselves scale_scores(const Any &...)
{
    return {};
}

template <bool kInSoftmax, class... Any> __device__ __forceinline__ void end_scores(const Any &...) {}
