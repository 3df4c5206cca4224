#pragma once
#include "lib/ptx.cuh"

// ---- the product of fragments of fp32 by three of TF32; SM 8.0 and newer --------------------------------------------
//
// TF32 has 11 significant bits of the 24 of fp32. A number x is the sum of hi, its nearest number of TF32, and lo. The
// product of two numbers is hi hi + hi lo + lo hi. What is left out, lo lo and the last bits of lo, is about 2^-22 of
// the product. The smallest products are added first. Tensor cores cut sums off to fp32 and do not round them, always
// towards 0. Over thousands of products that is 2e-5 of O. So they sum the products of eight columns or keys at a time,
// and FADD adds these sums.
//
// An infinite element has no such parts: it gives NaN.
//
// Fragments of m16n8k8, with lane = 4 * quad_row + quad_lane: A has the numbers of rows quad_row and quad_row + 8 at
// depth quad_lane and quad_lane + 4. An 8x8 matrix of 16-bit elements is an 8x4 matrix of fp32 numbers, so ldmatrix
// gives each lane its own.

struct Split {
    uint32 hi, lo;  // the product ignores the last 13 bits of both

    Split() = default;

    __device__ __forceinline__ explicit Split(uint32 x)
        : hi((x + 0x1000u) & 0xffffe000u), lo(__float_as_uint(__uint_as_float(x) - __uint_as_float(hi)))
    {
    }
};

// c += a b of TF32 numbers: a is 16x8 row-major, b is 8x8 column-major.
__device__ __forceinline__ void mma_tf32(float (&c)[4], uint32 a0, uint32 a1, uint32 a2, uint32 a3, uint32 b0,
                                         uint32 b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The same of fp32 numbers.
__device__ __forceinline__ void multiply(float (&c)[4], const Split (&a)[4], const Split &b0, const Split &b1)
{
    float sum[4] = {};
    mma_tf32(sum, a[0].lo, a[1].lo, a[2].lo, a[3].lo, b0.hi, b1.hi);
    mma_tf32(sum, a[0].hi, a[1].hi, a[2].hi, a[3].hi, b0.lo, b1.lo);
    mma_tf32(sum, a[0].hi, a[1].hi, a[2].hi, a[3].hi, b0.hi, b1.hi);
#pragma unroll
    for (int e = 0; e < 4; e++)
        c[e] += sum[e];
}

__device__ __forceinline__ void load_splits(Split (&a)[4], uint32 smem)
{
    uint32 x[4];
    ldmatrix_x4(x, smem);
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = Split(x[i]);
}

__device__ __forceinline__ Split load_split(uint32 smem)
{
    return Split(__float_as_uint(load_shared_4(smem)));
}

// s += A B^T over the columns of two tiles of rows. Form: layout of the rows; a_smem, b_smem: this warp's rows.
template <class Form, int kM, int kN>
__device__ __forceinline__ void product_of_rows(float (&s)[kM][kN][4], uint32 a_smem, uint32 b_smem, int lane)
{
    static_assert(kN % 2 == 0, "ldmatrix reads 16 rows of B");
    const uint32 rows = a_smem + Form::lane_offset_rows(lane), cols = b_smem + Form::lane_offset_cols(lane);
#pragma unroll 2
    for (int step = 0; step < Form::kChunks / 2; step++) {
        Split a[kM][4];
#pragma unroll
        for (int m = 0; m < kM; m++)
            load_splits(a[m], rows + step * 32 + m * 16 * Form::kPitch);
#pragma unroll
        for (int n = 0; n < kN; n += 2) {
            Split b[4];
            load_splits(b, cols + step * 32 + n * 8 * Form::kPitch);
#pragma unroll
            for (int m = 0; m < kM; m++) {
                multiply(s[m][n], a[m], b[0], b[1]);
                multiply(s[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// sum[.][n] += a b for the n8 tile of b at `at`, whose rows are the depth.
template <int kM, int kN, int kBytes>
__device__ __forceinline__ void multiply_rows(float (&sum)[kM][kN][4], int n, const Split (&a)[kM][4], uint32 at)
{
    const Split b0 = load_split(at), b1 = load_split(at + kBytes);
#pragma unroll
    for (int m = 0; m < kM; m++)
        multiply(sum[m][n], a[m], b0, b1);
}
