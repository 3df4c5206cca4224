#pragma once
#include "hopper/wgmma.cuh"
#include "lib/mma.cuh"
#include "lib/ptx.cuh"

// ---- slopes in the product: slope * column, by one more k16 step of S = Q K^T ---------------------------------------
//
// If no key of a tile is after the row's own position, the term of a slope is linear in the key. Its part that is the
// same for all keys of the tile goes to the softmax (forward/terms.cuh); slope * column remains. It is computed by one
// more k16 step: three extra columns of Q hold the slope in 16-bit parts, three of K hold the column number. So it
// needs no instruction per score. The three are columns 0, 1 and 8 of the sixteen, which belong to one lane of a row.
// Columns count from the tile's last one, so no part of a term is larger than the term.

static_assert(kBc <= 256, "columns of a tile are numbers in 16 bits");

// Returns the number of a tile's column: 0 or less.
__device__ __forceinline__ float column_number(int column)
{
    return float(column - (kBc - 1));
}

// Writes the extra columns of K, once per block. Eight keys of eight columns are contiguous (128 bytes); the other
// eight columns follow them.
__device__ __forceinline__ void put_extra_k_columns(uint32 smem)
{
    for (int key = threadIdx.x; key < kBc; key += kThreads) {
        const uint32 to = smem + kExtraKArea + key / 8 * 256 + key % 8 * 16;
        const uint32 both = pack2(column_number(key), column_number(key));
        store_shared_16(to, uint4{both, 0, 0, 0});
        store_shared_16(to + 128, uint4{both & 0xffff, 0, 0, 0});
    }
    fence_products();
}

__device__ __forceinline__ uint64 extra_k_columns(uint32 smem)
{
    constexpr uint64 kColumnsOf8 = uint64(128 / 16) << 16, kRowsOf8 = uint64(256 / 16) << 32;
    return kRowsOf8 | kColumnsOf8 | (smem + kExtraKArea) / 16;
}

// Computes the extra columns of Q for this lane's rows.
template <class Slopes> __device__ __forceinline__ void slope_columns(const Slopes &slopes, int lane, uint32 (&a)[4])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float slope = slopes.in_product(0, h) ? slopes.slope[0][h] : 0.0f;
        const float most = unpack2(pack2(slope, 0.0f)).x, rest = slope - most;
        const float more = unpack2(pack2(rest, 0.0f)).x;
        a[h] = lane % 4 == 0 ? pack2(most, more) : 0;
        a[2 + h] = lane % 4 == 0 ? pack2(rest - more, 0.0f) : 0;
    }
}

// Adds slope * column to an S that a warp has computed by itself.
__device__ __forceinline__ void add_slopes(float (&s)[kRowTiles][kColTiles][4], const uint32 (&slopes)[4])
{
    const int lane = thread_index() % 32;
    const bool has = lane % 4 == 0;
#pragma unroll
    for (int n = 0; n < kColTiles; n++) {
        const float key = column_number(n * 8 + lane / 4);
        mma_k16(s[0][n], slopes, has ? pack2(key, key) : 0, has ? pack2(key, 0.0f) : 0);
    }
}
