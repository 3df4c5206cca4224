#pragma once
#include "hopper/stages.cuh"

// The empty policy: no dropout, so no column keys.
__device__ __forceinline__ const char *column_keys_at(const Params &, int)
{
    return nullptr;
}

template <int kBlockThreads> __device__ __forceinline__ void prepare_column_keys(const Params &) {}

struct ColumnKeyTile {
    __device__ __forceinline__ ColumnKeyTile(uint32, const Stage &) {}
};

__device__ __forceinline__ void make_keeps(uint32 (&)[kBc / 16][4], Dropout &, ColumnKeyTile) {}

__device__ __forceinline__ void drop(uint32 (&)[kBc / 16][4], Dropout &, ColumnKeyTile) {}

__device__ __forceinline__ void drop(uint32 (&)[kBc / 16][4], const uint32 (&)[kBc / 16][4]) {}
