#pragma once
#include "backward/coord.cuh"
#include "lib/ptx.cuh"

// ---- the gradient of sinks: -sum over the rows of a head of exp(sink - LSE) * delta ------------------------
//
// Its entry point is in steps.cu.in.

// The kernel; one block per head. The order of the sum is fixed.
template <int kBlockThreads> __device__ __forceinline__ void head_sums(const Params &p)
{
    __shared__ float sums[kBlockThreads / 32];
    if (p.features.dsinks == nullptr)
        return;
    const int head = blockIdx.x;
    const int64 head_rows = rows_of_batch_head(p);
    const int64 all_rows = int64(batches(p)) * p.heads_q * head_rows;
    // A separate multiplication, rounded as in the computation of LSE. For a row that saw no key, LSE is the sink, and
    // the difference must be exactly 0. An FMA would not round the product: the difference would be a rounding error,
    // and for a large sink exp2 of it would be infinity, times a delta of 0.
    const float sink = __fmul_rn(p.features.sinks[head], 1.4426950408889634f);
    float sum = 0.0f;
    for (int batch = 0; batch < batches(p); batch++) {
        const float *rows = p.rows + (int64(batch) * p.heads_q + head) * head_rows;
        for (int row = threadIdx.x; row < (kVarlen ? int(head_rows) : p.seq_q); row += kBlockThreads)
            sum += exp2_approx(sink - rows[row]) * rows[all_rows + row];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();  // the sums of all warps are there
    if (threadIdx.x != 0)
        return;
    for (int warp = 1; warp < kBlockThreads / 32; warp++)
        sum += sums[warp];
    if constexpr (kDropout)
        sum *= p.features.keep_scale;  // delta was divided by it
    p.features.dsinks[head] = -sum;
}
