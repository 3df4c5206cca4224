#pragma once
#include "backward/packed.cuh"
#include "lib/ptx.cuh"

// ---- the gradient of sinks: -sum over the rows of a head of exp(sink - LSE) * delta ------------------------

// The step's kernel, one block of kSinkThreads per head; the order of the sum is always the same. sums: in shared memory.
__device__ __forceinline__ void sum_sinks(const Params &p, float (&sums)[kSinkThreads / 32])
{
    if (p.features.dsinks == nullptr)
        return;
    const int head = blockIdx.x;
    const int64 head_rows = plane_rows(p);
    const int64 all_rows = int64(batches(p)) * p.heads_q * head_rows;
    // A product of its own, rounded as that in LSE was. In an FMA it is not rounded, and for a row that saw no key,
    // whose LSE is the sink, the difference is a rounding error: of a large sink exp2 of that is infinity, times a
    // delta of 0.
    const float sink = __fmul_rn(p.features.sinks[head], 1.4426950408889634f);
    float sum = 0.0f;
    for (int batch = 0; batch < batches(p); batch++) {
        const float *rows = p.rows + (int64(batch) * p.heads_q + head) * head_rows;
        for (int row = threadIdx.x; row < (kVarlen ? prepared_rows(p) : p.seq_q); row += kSinkThreads)
            sum += exp2_approx(sink - rows[row]) * rows[all_rows + row];
    }
    for (int lanes = 16; lanes > 0; lanes /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();  // the sums of all warps are there
    if (threadIdx.x != 0)
        return;
    for (int warp = 1; warp < kSinkThreads / 32; warp++)
        sum += sums[warp];
    if constexpr (kDropout)
        sum *= p.features.keep_scale;  // delta was divided by it
    p.features.dsinks[head] = -sum;
}
