#pragma once
#include "forward/place.cuh"

// The empty policy: lanes exchange no page numbers.
struct NoPageNumbers {
    const Params &p;
    const BlockPlace &place;

    __device__ __forceinline__ NoPageNumbers(const Params &p, const BlockPlace &place) : p(p), place(place) {}

    __device__ __forceinline__ void find_first(int) {}

    __device__ __forceinline__ void find_next(int) {}

    __device__ __forceinline__ void pass() {}
};

template <class Plan>
__device__ __forceinline__ KeyRows rows_of(const NoPageNumbers &numbers, const Plan &, int tile, const PageSteps &)
{
    return KeyRows(numbers.p, numbers.place, tile);
}

template <class> using PageNumbersOf = NoPageNumbers;
