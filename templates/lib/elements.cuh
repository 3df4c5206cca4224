#pragma once
#include "lib/types.cuh"

// ---- element types ----------------------------------------------------------------------------------------------
//
// The configuration chooses one (`using Elem = bf16;`). A type says how many bytes it has. One of 16 bits converts two
// neighbouring elements of a register, and Mma<Elem> multiplies them (lib/mma.cuh).

struct fp16 {
    static constexpr int kBytes = 2;
    static constexpr bool kHasRangeOfFp32 = false;  // numbers beyond 65504 are infinite
    static constexpr float kOneOfFp16 = 1.0f;       // the number whose bits are those of 1 in fp16

    // Returns two elements in one register, rounded to nearest even; lo is in the lower half.
    static __device__ __forceinline__ uint32 pack(float lo, float hi)
    {
        uint32 x;
        if constexpr (kTuring)
            asm("{\n\t.reg .b16 l, h;\n\t"
                "cvt.rn.f16.f32 l, %1;\n\tcvt.rn.f16.f32 h, %2;\n\tmov.b32 %0, {l, h};\n\t}"
                : "=r"(x)
                : "f"(lo), "f"(hi));
        else
            asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(hi), "f"(lo));
        return x;
    }

    // Returns both elements of a register.
    static __device__ __forceinline__ float2 unpack(uint32 x)
    {
        float2 y;
        asm("{\n\t.reg .b16 l, h;\n\t"
            "mov.b32 {l, h}, %2;\n\tcvt.f32.f16 %0, l;\n\tcvt.f32.f16 %1, h;\n\t}"
            : "=f"(y.x), "=f"(y.y)
            : "r"(x));
        return y;
    }

    // Multiplies two elements by two others.
    static __device__ __forceinline__ uint32 multiply(uint32 x, uint32 y)
    {
        uint32 product;
        asm("mul.f16x2 %0, %1, %2;" : "=r"(product) : "r"(x), "r"(y));
        return product;
    }
};

// SM 8.0 and newer.
struct bf16 {
    static constexpr int kBytes = 2;
    static constexpr bool kHasRangeOfFp32 = true;
    static constexpr float kOneOfFp16 = 0x1p-7f;

    static __device__ __forceinline__ uint32 pack(float lo, float hi)
    {
        uint32 x;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(hi), "f"(lo));
        return x;
    }

    static __device__ __forceinline__ float2 unpack(uint32 x)
    {
        return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
    }

    // SM 8.0 has no multiplication alone; adding -0 changes no product.
    static __device__ __forceinline__ uint32 multiply(uint32 x, uint32 y)
    {
        uint32 product;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(x), "r"(y), "r"(0x80008000u));
        return product;
    }
};

// P and V may be rounded to such numbers (forward/fp8_p.cuh).
struct e4m3 {
    static constexpr int kBytes = 1;
};

// Kernels of fp32 (fp32/fwd.cuh) keep one element in a register, and convert nothing.
struct fp32 {
    static constexpr int kBytes = 4;
    static constexpr bool kHasRangeOfFp32 = true;
};
