#pragma once
#include "lib/types.cuh"

// c += a b in e4m3 numbers: a is 16x32 row-major, b is 32x8 column-major. SM 8.9 and 12.x multiply such numbers. For
// SM 9.0 to 11.0 ptxas makes fp16 products instead.
__device__ __forceinline__ void mma_k32_fp8(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
