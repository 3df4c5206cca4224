#pragma once
#include "forward/coord.cuh"

constexpr bool kPagesExchanged = false;

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

// The scale of row r of a tile.
template <class Plan>
__device__ __forceinline__ const char *scale_at(const NoPageNumbers &, const KeyRows &rows, const Plan &, int, int,
                                                int r, const char *batch_head, const Strides &stride)
{
    return rows.template at<kRowScaleBytes>(batch_head, stride, r);
}

template <class> using PageNumbersOf = NoPageNumbers;
