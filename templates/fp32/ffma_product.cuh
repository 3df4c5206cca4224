#pragma once
#include "lib/ptx.cuh"

// ---- the product of rows by FMA instructions ------------------------------------------------------------------------
//
// A lane computes the elements that it has of an accumulator of m16n8 (forward/softmax.cuh). The four lanes of a quad
// have the same rows of A, and the eight lanes of a column the same rows of B. So shared memory sends each of their
// numbers once.

// s += A B^T over the columns of two tiles of rows, four at a time. Form: layout of the rows; a_smem, b_smem: this
// warp's rows.
template <class Form, int kM, int kN>
__device__ __forceinline__ void product_of_rows(float (&s)[kM][kN][4], uint32 a_smem, uint32 b_smem, int lane)
{
    const uint32 rows = a_smem + lane / 4 * Form::kPitch, cols = b_smem + lane % 4 * 2 * Form::kPitch;
#pragma unroll 2
    for (int step = 0; step < Form::kChunks; step++) {
        float4 a[2 * kM];
#pragma unroll
        for (int r = 0; r < 2 * kM; r++)
            a[r] = load_shared_floats(rows + r * 8 * Form::kPitch + step * 16);
#pragma unroll
        for (int n = 0; n < 2 * kN; n++) {
            const float4 b = load_shared_floats(cols + (n / 2 * 8 + n % 2) * Form::kPitch + step * 16);
#pragma unroll
            for (int r = 0; r < 2 * kM; r++) {
                float &sum = s[r / 2][n / 2][r % 2 * 2 + n % 2];
                sum = fmaf(a[r].x, b.x, sum);
                sum = fmaf(a[r].y, b.y, sum);
                sum = fmaf(a[r].z, b.z, sum);
                sum = fmaf(a[r].w, b.w, sum);
            }
        }
    }
}
