#pragma once
#include "backward/clear_dq.cuh"
#include "lib/ptx.cuh"

// ---- dQ sums: blocks add to the tensor itself -----------------------------------------------------------------------
//
// Policy; the other ones are backward/dq_sums.cuh and hopper/dq_rows.cuh. With kMerges they add to what is there. The
// workspace has no sums, so the counters of dq_order.cuh are where sums would begin.
constexpr bool kDqDirect = true;
constexpr int kDqWidth = 0, kDqTile = 0;  // numbers in the workspace, per row and per tile

// Rows of the sums over all heads.
__device__ __forceinline__ int64 dq_rows(const Params &, int64)
{
    return 0;
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
