#pragma once
#include "lib/types.cuh"

// ---- numbers of a gradient: elements, or fp32 (kPartial), which may be added to what is in memory (kMerges) ---------

// Adds what is in memory to two or four neighbouring numbers, if the kernel merges. Callers do so for many numbers
// before they write any: the compiler moves no read before a write of the same memory, so each would wait for its
// latency.
__device__ __forceinline__ void add_old(float2 &x, const char *from)
{
    if constexpr (kMerges) {
        const float2 old = *reinterpret_cast<const float2 *>(from);
        x = float2{x.x + old.x, x.y + old.y};
    }
}

__device__ __forceinline__ void add_old(float4 &x, const char *from)
{
    if constexpr (kMerges) {
        const float4 old = *reinterpret_cast<const float4 *>(from);
        x = float4{x.x + old.x, x.y + old.y, x.z + old.z, x.w + old.w};
    }
}

// Writes four neighbouring numbers in fp32.
__device__ __forceinline__ void put_fp32(char *to, float4 x)
{
    add_old(x, to);
    *reinterpret_cast<float4 *>(to) = x;
}

// Eight neighbouring numbers in fp32.
struct Fp32Chunk {
    float4 left, right;

    __device__ __forceinline__ void add_old(const char *from)
    {
        ::add_old(left, from);
        ::add_old(right, from + 16);
    }

    __device__ __forceinline__ void write(char *to) const
    {
        reinterpret_cast<float4 *>(to)[0] = left;
        reinterpret_cast<float4 *>(to)[1] = right;
    }
};

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
        float2 y[kTiles];
#pragma unroll
        for (int n = 0; n < kTiles; n++) {
            y[n] = float2{x[n][2 * h] * scale, x[n][2 * h + 1] * scale};
            if (chunk(n) < kColumns / 8)
                add_old(y[n], to + chunk(n) * 32);
        }
#pragma unroll
        for (int n = 0; n < kTiles; n++)
            if (chunk(n) < kColumns / 8)
                *reinterpret_cast<float2 *>(to + chunk(n) * 32) = y[n];
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
