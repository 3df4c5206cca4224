#pragma once
#include "lib/types.cuh"

// ---- cp.async: copies from global to shared memory that a thread need not wait for; SM 8.0 and newer --------

// 16 bytes from global to shared memory, past the L1 cache, if wanted: a predicate, where a branch would
// part the instructions around it.
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

// The same, but 16 zero bytes unless keep; gmem is not read then.
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

__device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Wait until at most kPending of this thread's committed groups are unfinished.
template <int kPending> __device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
