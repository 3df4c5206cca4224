#pragma once
#include "lib/types.cuh"

// ---- products of a warpgroup ------------------------------------------------------------------------------
//
// wgmma runs beside the threads that issued it. A fence orders what they did with its registers before; a
// commit closes a group; a wait for groups makes their registers readable, and what they read of shared memory
// free. Accumulators are laid out as mma's: 16 rows a warp, n8 column tiles. pin() keeps the compiler from
// moving uses of registers over the asm around it.

__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// What this thread wrote to shared memory, and waited for, is seen by products, behind a barrier of theirs.
__device__ __forceinline__ void fence_products()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Wait until at most kPending committed groups are unfinished.
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

// How wgmma finds a tile in shared memory, 128-byte swizzle; addresses count 16 bytes. page_bytes: from one page
// of 64 columns to the next, where a product reads several at a time (V).
__device__ __forceinline__ uint64 tile_descriptor(uint32 smem, int page_bytes)
{
    constexpr uint64 kSwizzle128 = uint64(1) << 62, kRowsOf8 = uint64(8 * kPageRowBytes / 16) << 32;
    return kSwizzle128 | kRowsOf8 | uint64(page_bytes / 16) << 16 | smem / 16;
}

// A warpgroup's registers change hands; all of its warps do it together.
template <int kRegisters> __device__ __forceinline__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters> __device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// named_barrier, but these threads only arrive: they do not wait for the others.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
