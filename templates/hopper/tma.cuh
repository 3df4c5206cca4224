#pragma once
#include "lib/types.cuh"

// ---- barriers in shared memory, and loads that arrive at them -------------------------------------------
//
// A barrier's phase ends when all of its arrivals are there, and all bytes that were announced. A wait names
// the parity of the phase: 0 for the first one. Before that has begun, a wait for parity 1 returns at once.

// A tensor map, as the driver encodes it: of [batch, head, seq, column], boxes of rows x 64 columns. What is behind the
// end of a sequence or a row is zeros.
struct alignas(64) TensorMap {
    char opaque[128];
};

__device__ __forceinline__ void barrier_init(uint32 barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Barriers that this thread made are seen by what the tensor maps' loads go through.
__device__ __forceinline__ void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32 barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The same by one lane of a warp, without a branch: in one the compiler would compute shared memory's address anew, and
// take all that follows from it, descriptors of products among that, for different in the lanes.
__device__ __forceinline__ void barrier_arrive_by(int lane, uint32 barrier)
{
    asm volatile("{\n"
                 "    .reg .pred first;\n"
                 "    setp.eq.s32 first, %1, 0;\n"
                 "    @first mbarrier.arrive.shared::cta.b64 _, [%0];\n"
                 "}" ::"r"(barrier),
                 "r"(lane)
                 : "memory");
}

// Arrive, and announce bytes that are to come.
__device__ __forceinline__ void barrier_expect(uint32 barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32 barrier, uint32 parity)
{
    asm volatile("{\n"
                 "    .reg .pred done;\n"
                 "again:\n"
                 "    mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "    @!done bra again;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// Arrive when what this lane began to copy is there; it is one of those that the barrier counts.
__device__ __forceinline__ void barrier_arrive_behind_copies(uint32 barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// 16 or 4 bytes from global to shared memory, zeros behind the first `bytes`.
__device__ __forceinline__ void copy_16_or_less(uint32 smem, const void *gmem, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem), "l"(gmem), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copy_4_or_less(uint32 smem, const void *gmem, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(smem), "l"(gmem), "r"(bytes) : "memory");
}

// A coordinate of a tensor map. Where batches or heads are the same memory, the map has one of them.
__device__ __forceinline__ int coordinate(int index, int64 stride)
{
    return stride == 0 ? 0 : index;
}

// Rows from `row` on of 64 columns from `column` on, into a page of a tile.
__device__ __forceinline__ void load_page(uint32 smem, const TensorMap &map, uint32 barrier, int column, int row,
                                          int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(smem),
                 "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

// Bytes that lie one after the other, multiples of 16.
__device__ __forceinline__ void load_bytes(uint32 smem, const void *gmem, int bytes, uint32 barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem),
                 "l"(gmem), "r"(bytes), "r"(barrier)
                 : "memory");
}

// What this thread did to shared memory is done before loads that come into the same place, behind a barrier.
__device__ __forceinline__ void release_to_loads()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The reverse: rows of a page to global memory, as far as there are rows and columns.
__device__ __forceinline__ void store_page(const TensorMap &map, uint32 smem, int column, int row, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
                 "r"(smem), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

__device__ __forceinline__ void commit_stores()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// What this thread's stores read of shared memory has been read.
__device__ __forceinline__ void wait_stores()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
