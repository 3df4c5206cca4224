#pragma once
#include "forward/coord.cuh"
#include "lib/fill.cuh"

// The empty policy: rows of K and V have no scales.
struct ScaleHeads {
    __device__ __forceinline__ ScaleHeads(const Params &, const BlockCoord &, int) {}
};

struct ScaleFills {
    template <bool kFull, class... Any> __device__ __forceinline__ void issue_k_scales(const Any &...) {}

    template <bool kFull, class... Any> __device__ __forceinline__ void issue_v_scales(const Any &...) {}

    __device__ __forceinline__ void store_k_scales(uint32) {}

    __device__ __forceinline__ void store_v_scales(uint32) {}
};
