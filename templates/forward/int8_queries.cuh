#pragma once
#include "forward/softmax.cuh"
#include "lib/mma.cuh"
#include "lib/rounding.cuh"

// ---- rows of Q become 8-bit integers, with one scale per row -------------------------------------------------------

// The largest absolute value of a row, as bits, and the row's product with the mean key. h: 0 or 1, for quad_row or
// quad_row + 8. Fragments e = h and h + 2 of a k16 step have the row's columns 2 * quad_lane and 8 + 2 * quad_lane.
__device__ __forceinline__ void measure_row(const uint32 (&q_frag)[kDepth][4], int h, const float *mean, uint32 &most,
                                            float &product)
{
    most = 0;
    product = 0.0f;
#pragma unroll
    for (int i = 0; i < 2 * kDepth; i++) {
        const float2 x = unpack2(q_frag[i / 2][h + i % 2 * 2]);
        const float2 of_mean = __ldg(reinterpret_cast<const float2 *>(mean + i * 8));
        most = max(most, max(absolute_bits(x.x), absolute_bits(x.y)));
        product = fmaf(x.x, of_mean.x, fmaf(x.y, of_mean.y, product));
    }
    most = max(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = max(most, __shfl_xor_sync(0xffffffffu, most, 2));
    product = quad_sum(product);
}

// Rounds four columns of a row: two of each word.
__device__ __forceinline__ uint32 round_four(const Rounding &rounding, uint32 low, uint32 high)
{
    const float2 x = unpack2(low), y = unpack2(high);
    return pack_bytes(rounding.byte(x.x), rounding.byte(x.y), rounding.byte(y.x), rounding.byte(y.y));
}
