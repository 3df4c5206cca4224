#pragma once
#include "lib/elements.cuh"

// ---- mma.sync: products of warps ------------------------------------------------------------------------------

// Products of elements, with fp32 accumulation: c += a b. k16: a is 16x16 row-major, b is 16x8 column-major.
template <class E> struct Mma;

template <> struct Mma<fp16> {
    // a is 16x8, b is 8x8.
    static __device__ __forceinline__ void k8(float (&c)[4], uint32 a0, uint32 a1, uint32 b0)
    {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(b0));
    }

    // SM 7.5 multiplies the same fragments twice with half of the depth.
    static __device__ __forceinline__ void k16(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1)
    {
        if constexpr (kTuring) {
            k8(c, a[0], a[1], b0);
            k8(c, a[2], a[3], b1);
        } else {
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
        }
    }
};

template <> struct Mma<bf16> {
    static __device__ __forceinline__ void k8(float (&c)[4], uint32 a0, uint32 a1, uint32 b0)
    {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(b0));
    }

    static __device__ __forceinline__ void k16(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

__device__ __forceinline__ void mma_k16(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1)
{
    Mma<Elem>::k16(c, a, b0, b1);
}

// c = a b + from, on bytes: a is 16x16 row-major (this lane has a word of a row in either half), b is 16x8
// column-major.
__device__ __forceinline__ void mma_bytes(uint32 (&c)[4], uint32 a0, uint32 a1, uint32 b, const uint32 (&from)[4])
{
    if constexpr (kTuring) {
        asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0, %1}, {%2}, {%3}, {%4, %5};"
            : "=r"(c[0]), "=r"(c[1])
            : "r"(a0), "r"(b), "r"(from[0]), "r"(from[1]));
        asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0, %1}, {%2}, {%3}, {%4, %5};"
            : "=r"(c[2]), "=r"(c[3])
            : "r"(a1), "r"(b), "r"(from[2]), "r"(from[3]));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
            : "r"(a0), "r"(a1), "r"(b), "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]));
    }
}

// Packs two elements into one register; lo is in the lower half.
__device__ __forceinline__ uint32 pack2(float lo, float hi)
{
    return Elem::pack(lo, hi);
}

// Returns both elements of a register.
__device__ __forceinline__ float2 unpack2(uint32 x)
{
    return Elem::unpack(x);
}
