#pragma once
#include "forward/coord.cuh"
#include "forward/key_place.cuh"

// The empty policy of quantise.cuh: V stays as it is.
struct Values {
    static constexpr int kWords = 0;

    template <class... Any> __device__ __forceinline__ void read(const Any &...) const {}
    template <class... Any> __device__ __forceinline__ void measure(const Any &...) const {}
    template <class... Any> __device__ __forceinline__ void write(const Any &...) const {}
    template <class... Any> __device__ __forceinline__ void round(const Any &...) const {}
};
