#pragma once
#include "forward/int8_keys.cuh"
#include "forward/key_place.cuh"
#include "forward/coord.cuh"

// ---- V in e4m3 numbers, in the workspace ----------------------------------------------------------------------------
//
// The step before (quantise.cuh, fp8_values.cuh) leaves it there, transposed. After the keys of int8_keys.cuh, and
// before their means, comes V; after the counts a scale for each tile of V:
//
//     values         [Hkv][tiles of all sequences][kHeadDim][kBc], e4m3
//     value scales   [Hkv][tiles of all sequences], fp32

static_assert(kKeyBytes % kHeadDim == 0 || kHeadDim % 32 == 16, "fa2i_forward_int8_layout counts whole k32 steps");

struct ValueBytes {
    static __device__ __forceinline__ int place(int column, int key)
    {
        return column * kBc + key;
    }
};

// A tile of V: its number among the tiles of all heads.
__device__ __forceinline__ char *rounded_values(const Params &p, int64 tile)
{
    const int64 keys = all_key_tiles(p) * (p.heads_q / p.group) * kBc;
    return reinterpret_cast<char *>(p.partial) + keys * kKeyBytes + tile * (kBc * kKeyBytes);
}

// There is no row besides the columns of V.
__device__ __forceinline__ void write_sum_rows(char *) {}

// Where the tiles of V of the block's head begin.
__device__ __forceinline__ const char *loaded_values(const Params &p, const BlockCoord &coord, int kv_head)
{
    return rounded_values(p, kv_head * all_key_tiles(p) + first_key_tile(p, coord.batch));
}
