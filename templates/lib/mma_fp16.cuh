#pragma once
#include "lib/mma.cuh"

// ---- mma.sync with fp16 sums ----------------------------------------------------------------------------------
//
// An accumulator has two registers instead of four: columns 2 * quad_lane and 2 * quad_lane + 1 of row quad_row in
// c[0], and of row quad_row + 8 in c[1].

// c += a b: a is 16x8 row-major, b is 8x8 column-major, fp16 accumulation.
__device__ __forceinline__ void mma_k8_fp16(uint32 (&c)[2], uint32 a0, uint32 a1, uint32 b0)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
        : "+r"(c[0]), "+r"(c[1])
        : "r"(a0), "r"(a1), "r"(b0));
}

// c += a b: a is 16x16 row-major, b is 16x8 column-major, fp16 accumulation.
__device__ __forceinline__ void mma_k16_fp16(uint32 (&c)[2], const uint32 (&a)[4], uint32 b0, uint32 b1)
{
    if constexpr (kTuring) {
        mma_k8_fp16(c, a[0], a[1], b0);
        mma_k8_fp16(c, a[2], a[3], b1);
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

// Converts packed elements to fp16.
__device__ __forceinline__ uint32 elements_to_fp16(uint32 x)
{
    if constexpr (kSame<Elem, fp16>)
        return x;
    const float2 wide = unpack2(x);
    return fp16::pack(wide.x, wide.y);
}
