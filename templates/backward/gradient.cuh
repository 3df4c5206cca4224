#pragma once
#include "lib/types.cuh"

// ---- numbers of a gradient: elements, or fp32 (kPartial), which may be added to what is in memory (kMerges) ---------

// Writes two or four neighbouring numbers in fp32.
__device__ __forceinline__ void put_fp32(char *to, float2 x)
{
    float2 *const at = reinterpret_cast<float2 *>(to);
    if constexpr (kMerges) {
        const float2 old = *at;
        x = float2{x.x + old.x, x.y + old.y};
    }
    *at = x;
}

__device__ __forceinline__ void put_fp32(char *to, float4 x)
{
    float4 *const at = reinterpret_cast<float4 *>(to);
    if constexpr (kMerges) {
        const float4 old = *at;
        x = float4{x.x + old.x, x.y + old.y, x.z + old.z, x.w + old.w};
    }
    *at = x;
}

// Writes eight neighbouring numbers in fp32.
__device__ __forceinline__ void put_fp32_chunk(char *to, const float (&x)[8])
{
    put_fp32(to, float4{x[0], x[1], x[2], x[3]});
    put_fp32(to + 16, float4{x[4], x[5], x[6], x[7]});
}

// Scales an m16 tile of this warp and writes its rows before `end` in fp32, from registers: the four lanes of a quad
// fill a sector. head: element offset of the head in `out`; row: the tile's first row, in the head; chunk(n): where n8
// tile n lies in a row of kColumns.
template <int kColumns, int kTiles, class Chunk>
__device__ __forceinline__ void put_fp32_tile(char *out, int64 head, const Strides &stride, int row, int end,
                                              const float (&x)[kTiles][4], float scale, int lane, Chunk chunk)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int64 own = row + h * 8 + lane / 4;
        if (own >= end)
            continue;
        char *const to = out + (head + own * stride.seq) * 4 + lane % 4 * 8;
#pragma unroll
        for (int n = 0; n < kTiles; n++)
            if (chunk(n) < kColumns / 8)
                put_fp32(to + chunk(n) * 32, float2{x[n][2 * h] * scale, x[n][2 * h + 1] * scale});
    }
}

// Sets a chunk of eight numbers to 0. Nothing is to be added there if the kernel merges.
__device__ __forceinline__ void clear_chunk(char *to)
{
    if constexpr (kMerges)
        return;
    *reinterpret_cast<uint4 *>(to) = uint4{};
    if constexpr (kPartial)
        *reinterpret_cast<uint4 *>(to + 16) = uint4{};
}
