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

static_assert(kHeadDim <= kKeyBytes, "a tile of V fits into the bytes of one of K, of which the host counts as many");

struct ValueBytes {
    static __device__ __forceinline__ int place(int column, int key)
    {
        return column * kBc + key;
    }
};

// Returns the address of a tile of V. tile: its number among the tiles of all heads.
__device__ __forceinline__ char *rounded_values(const Params &p, int64 tile)
{
    const int64 keys = all_key_tiles(p) * (p.heads_q / p.group) * kBc;
    return reinterpret_cast<char *>(p.partial) + keys * kKeyBytes + tile * (kBc * kKeyBytes);
}

// Writes nothing: row sums are a product of their own (product_pv_fp8.cuh).
__device__ __forceinline__ void write_sum_rows(char *) {}

// Returns where the tiles of V of the block's head begin.
__device__ __forceinline__ const char *loaded_values(const Params &p, const BlockCoord &coord, int kv_head)
{
    return rounded_values(p, first_tile_of(p, coord, kv_head));
}
