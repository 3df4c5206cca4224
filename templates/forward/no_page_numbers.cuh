#pragma once
#include "forward/coord.cuh"

// The empty policy: lanes exchange no page numbers.
struct NoPageNumbers {
    const Params &p;
    const BlockCoord &coord;

    __device__ __forceinline__ NoPageNumbers(const Params &p, const BlockCoord &coord) : p(p), coord(coord) {}

    __device__ __forceinline__ void find_first(int) {}

    __device__ __forceinline__ void find_next(int) {}

    __device__ __forceinline__ void pass() {}
};

template <class Plan>
__device__ __forceinline__ KeyRows rows_of(const NoPageNumbers &numbers, const Plan &, int tile, const PageSteps &)
{
    return KeyRows(numbers.p, numbers.coord, tile);
}

template <class> using PageNumbersOf = NoPageNumbers;
