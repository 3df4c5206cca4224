#pragma once
#include "lib/types.cuh"

// ---- wgmma: products of a warpgroup -----------------------------------------------------------------------------
//
// wgmma runs asynchronously to the threads that issue it. wgmma_fence orders earlier register accesses before it;
// wgmma_commit closes a group; wgmma_wait makes the registers of a group readable and its shared memory reusable.
// Accumulators have the layout of mma: 16 rows per warp, n8 column tiles. pin() keeps the compiler from moving uses of
// the accumulator across the asm around it.

__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Orders this thread's accesses to shared memory before those of wgmma and TMA (async proxy), so these see its writes,
// including copies that it waited for. A barrier must follow.
__device__ __forceinline__ void fence_products()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Waits until at most kPending committed groups are unfinished.
template <int kPending> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

template <int kN> __device__ __forceinline__ void pin(float (&x)[1][kN][4])
{
#pragma unroll
    for (int n = 0; n < kN; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            asm volatile("" : "+f"(x[0][n][e])::"memory");
}

// The wgmma descriptor of a tile in shared memory with 128-byte swizzle; addresses are in units of 16 bytes.
// page_bytes: the distance of pages of 64 columns, if a product reads several (V).
__device__ __forceinline__ uint64 tile_descriptor(uint32 smem, int page_bytes)
{
    constexpr uint64 kSwizzle128 = uint64(1) << 62, kRowsOf8 = uint64(8 * kPageRowBytes / 16) << 32;
    return kSwizzle128 | kRowsOf8 | uint64(page_bytes / 16) << 16 | smem / 16;
}

// Lowers (give) or raises (take) the registers per thread of a warpgroup to kRegisters. All of its warps must call it.
template <int kRegisters> __device__ __forceinline__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters> __device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Arrives at a named barrier without waiting.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
