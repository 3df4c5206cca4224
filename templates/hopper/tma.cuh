#pragma once
#include "lib/types.cuh"

// ---- mbarriers, and TMA loads that arrive at them -----------------------------------------------------------------
//
// A phase of an mbarrier ends when all arrivals and all announced bytes have come. A wait names the parity of a phase,
// 0 for the first one. A wait for parity 1 on a fresh barrier returns at once.

// A tensor map as the driver encodes it: [batch, head, seq, column], in boxes of rows x 64 columns. Elements after the
// end of a sequence or a row are loaded as zeros.
struct alignas(64) TensorMap {
    char opaque[128];
};

// Addresses of the two mbarriers of a stage. full: its data are there; empty: they are read.
struct StageBarriers {
    uint32 full, empty;
};

__device__ __forceinline__ void barrier_init(uint32 barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes the barriers that this thread initialised visible to the async proxy (TMA).
__device__ __forceinline__ void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32 barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// barrier_arrive by lane 0 of a warp, with a predicate instead of a branch. In a branch the compiler would compute the
// shared-memory address anew, and treat all values derived from it, such as wgmma descriptors, as different in each
// lane.
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

// Arrives, and announces bytes that will come.
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

// Arrives when the cp.async copies that this lane has issued are complete. The barrier counts this arrival (noinc).
__device__ __forceinline__ void barrier_arrive_after_copies(uint32 barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Copies 16 or 4 bytes from global to shared memory; only the first `bytes` are read, the rest becomes zeros.
__device__ __forceinline__ void copy_16_or_less(uint32 smem, const void *gmem, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem), "l"(gmem), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copy_4_or_less(uint32 smem, const void *gmem, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(smem), "l"(gmem), "r"(bytes) : "memory");
}

// A coordinate in a tensor map. If batches or heads share memory (stride 0), the map has only one of them.
__device__ __forceinline__ int coordinate(int index, int64 stride)
{
    return stride == 0 ? 0 : index;
}

// Loads rows from `row` on of 64 columns from `column` on into a page of a tile.
__device__ __forceinline__ void load_page(uint32 smem, const TensorMap &map, uint32 barrier, int column, int row,
                                          int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(smem),
                 "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

// Loads contiguous bytes, a multiple of 16.
__device__ __forceinline__ void load_bytes(uint32 smem, const void *gmem, int bytes, uint32 barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem),
                 "l"(gmem), "r"(bytes), "r"(barrier)
                 : "memory");
}

// Adds contiguous fp32 numbers to those in global memory; bytes: a multiple of 16.
__device__ __forceinline__ void add_bytes(float *gmem, uint32 smem, int bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(gmem), "r"(smem),
                 "r"(bytes)
                 : "memory");
}

// Stores rows of a page to global memory, clipped to the tensor's rows and columns.
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

// Waits until this thread's TMA stores and additions have been done in global memory.
__device__ __forceinline__ void wait_stores_done()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Waits until this thread's TMA stores and additions have read shared memory, which may then be written.
__device__ __forceinline__ void wait_stores_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
