#pragma once
#include "backward/coord.cuh"
#include "backward/gradient.cuh"
#include "lib/ptx.cuh"

// ---- dQ sums: blocks add to the tensor itself -----------------------------------------------------------------------
//
// Policy; the others are backward/dq_fragments.cuh and hopper/dq_columns.cuh. With kMerges they add to what is there.
// The workspace has no sums, so the counters of dq_order.cuh are where sums would begin.
constexpr bool kDqDirect = true;
constexpr int kDqWidth = 0, kDqTile = 0;  // numbers in the workspace, per row and per tile

// Rows of the sums over all heads.
__device__ __forceinline__ int64 dq_rows(const Params &, int64)
{
    return 0;
}

// Sets dQ to 0, in the kernel before the main one: rows that belong to a sequence, and those of none before the first
// and after the last one. row: of this thread's LSE; lane: the thread's number among those that share the row; index:
// of the block's first row, of which it has kBlockRows; rows, all_rows: of LSE in a head and in all heads.
template <int kBlockThreads, int kBlockRows, int kLanes>
__device__ __forceinline__ void clear_dq(const Params &p, int64 batch_head, int row, int lane, int64 index, int64 rows,
                                         int64 all_rows)
{
    if constexpr (kMerges)
        return;
    const int64 batch = batch_head / p.heads_q;
    const int head = batch_head % p.heads_q;
    char *const to = p.dq + (batch * p.dq_stride.batch + head * p.dq_stride.head + row * p.dq_stride.seq) * kOutBytes;
    if (row < (kVarlen ? p.features.total_q : p.seq_q))
        for (int chunk = lane; chunk < kHeadDim / 8; chunk += kLanes)
            clear_chunk(to + chunk * kChunkBytes);
    if constexpr (kVarlen) {
        const int64 end = min(index + kBlockRows, all_rows);
        while (index < end) {  // the block's rows of each head
            const int64 first = index % rows, count = min(end - index, rows - first);
            clear_unused_queries<kBlockThreads>(p, index / rows, first, first + count);
            index += count;
        }
    }
}

// Adds four neighbouring numbers of a row of dQ.
__device__ __forceinline__ void add_dq(float *to, const float (&x)[4])
{
#if __CUDA_ARCH__ >= 900
    add_global_16(to, x);
#else
#pragma unroll
    for (int i = 0; i < 4; i++)
        add_global_4(to + i, x[i]);
#endif
}
