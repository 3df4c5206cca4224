#pragma once
#include "forward/coord.cuh"

// The empty policy of quantise.cuh: V stays as it is.
struct Values {
    static constexpr int kWords = 0;

    template <class... Any> __device__ __forceinline__ void read(const Any &...) const {}
    template <class... Any> __device__ __forceinline__ void measure(const Any &...) const {}
    template <class... Any> __device__ __forceinline__ void write(const Any &...) const {}
    template <class... Any> __device__ __forceinline__ void round(const Any &...) const {}
};

// Where a thread's eight bytes of row r go, in a tile whose rows follow each other.
__device__ __forceinline__ uint2 *key_place(uint2 *tile, int r, int parcel, int parcels)
{
    return tile + parcel + r * parcels;
}
