#pragma once
#include "lib/types.cuh"

// ---- one function per PTX instruction: SM 7.5 and newer -------------------------------------------

// Returns threadIdx.x, read again at each call, so that values computed from it are not kept in registers.
__device__ __forceinline__ int thread_index()
{
    int index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
}

// Loads four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void ldmatrix_x4(uint32 (&r)[4], uint32 smem)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem)
                 : "memory");
}

// The same, with each matrix transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32 (&r)[4], uint32 smem)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem)
                 : "memory");
}

__device__ __forceinline__ void store_shared_16(uint32 smem, const uint4 &x)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}

__device__ __forceinline__ void store_shared_4(uint32 smem, uint32 x)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(smem), "r"(x) : "memory");
}

__device__ __forceinline__ void store_shared_8(uint32 smem, float x, float y)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(smem), "f"(x), "f"(y) : "memory");
}

__device__ __forceinline__ void store_shared_floats(uint32 smem, const float (&x)[4])
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(smem), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}

__device__ __forceinline__ float load_shared_4(uint32 smem)
{
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(smem) : "memory");
    return x;
}

__device__ __forceinline__ float2 load_shared_8(uint32 smem)
{
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(smem) : "memory");
    return x;
}

__device__ __forceinline__ float4 load_shared_floats(uint32 smem)
{
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(smem)
                 : "memory");
    return x;
}

__device__ __forceinline__ uint4 load_shared_16(uint32 smem)
{
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(smem)
                 : "memory");
    return x;
}

// Returns 2^x; 0 for -infinity.
__device__ __forceinline__ float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Return the maximum and the sum over the lanes of a warp.
__device__ __forceinline__ float warp_max(float x)
{
    for (int lanes = 16; lanes > 0; lanes /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

template <class Number> __device__ __forceinline__ Number warp_sum(Number x)
{
    for (int lanes = 16; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

// Barrier `id` (0 is __syncthreads) for `threads` threads, which are whole warps.
__device__ __forceinline__ void named_barrier(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Increments a counter in memory; returns its old value.
__device__ __forceinline__ uint32 take_ticket(uint32 *gmem)
{
    uint32 ticket;
    asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(ticket) : "l"(gmem) : "memory");
    return ticket;
}

// Increments a counter with release semantics: a thread that sees it also sees what this thread did before, and what
// barriers have made visible to this thread.
__device__ __forceinline__ void count_up(uint32 *gmem)
{
    asm volatile("fence.acq_rel.gpu;\n\tred.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(gmem) : "memory");
}

// Reads a counter that other blocks increment, bypassing L1.
__device__ __forceinline__ uint32 load_counter(const uint32 *gmem)
{
    uint32 x;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(gmem) : "memory");
    return x;
}

// Adds one number, or four contiguous ones, in memory, without a result. Four need SM 9.0.
__device__ __forceinline__ void add_global_4(float *gmem, float x)
{
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(gmem), "f"(x) : "memory");
}

__device__ __forceinline__ void add_global_16(float *gmem, const float (&x)[4])
{
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(gmem), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}
