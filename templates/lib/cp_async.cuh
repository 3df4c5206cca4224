#pragma once
#include "lib/types.cuh"

// ---- cp.async: asynchronous copies from global to shared memory; SM 8.0 and newer ---------------------------

// Copies 16 bytes from global to shared memory, bypassing L1, if wanted. It uses a predicate, because a branch would
// separate the instructions around it.
__device__ __forceinline__ void cp_async_16(uint32 smem, const char *gmem, bool wanted)
{
    asm volatile("{\n"
                 "    .reg .pred wanted;\n"
                 "    setp.ne.s32 wanted, %2, 0;\n"
                 "    @wanted cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n"
                 "}" ::"r"(smem),
                 "l"(gmem), "r"(int(wanted))
                 : "memory");
}

// As above, but writes 16 zero bytes if keep is false; gmem is not read then.
__device__ __forceinline__ void cp_async_16_or_zero(uint32 smem, const char *gmem, bool wanted, bool keep)
{
    asm volatile("{\n"
                 "    .reg .pred wanted;\n"
                 "    setp.ne.s32 wanted, %2, 0;\n"
                 "    @wanted cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %3;\n"
                 "}" ::"r"(smem),
                 "l"(gmem), "r"(int(wanted)), "r"(keep ? 16 : 0)
                 : "memory");
}

// Copies 4 bytes through L1, if wanted; zeros if keep is false.
__device__ __forceinline__ void cp_async_4_or_zero(uint32 smem, const char *gmem, bool wanted, bool keep)
{
    asm volatile("{\n"
                 "    .reg .pred wanted;\n"
                 "    setp.ne.s32 wanted, %2, 0;\n"
                 "    @wanted cp.async.ca.shared.global [%0], [%1], 4, %3;\n"
                 "}" ::"r"(smem),
                 "l"(gmem), "r"(int(wanted)), "r"(keep ? 4 : 0)
                 : "memory");
}

__device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's committed groups are unfinished.
template <int kPending> __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
