#pragma once
#include "forward/parts.cuh"

// The empty policy: a warp has all columns of its rows.
__device__ __forceinline__ void put_scores(uint32, const float (&)[kRowTiles][kColTiles][4]) {}

__device__ __forceinline__ void add_scores(uint32, float (&)[kRowTiles][kColTiles][4]) {}
