#pragma once
#include "forward/kv8_scales.cuh"
#include "forward/parts.cuh"
#include "forward/softmax.cuh"
#include "lib/bytes.cuh"
#include "lib/mma.cuh"
#include "lib/ptx.cuh"

// ---- O += P V with V in 8 bits ------------------------------------------------------------------------------------
//
// Policy of kernels whose K and V are in 8 bits. ldmatrix.trans moves 16 bits: a lane gets columns 2 g and 2 g + 1 of
// keys 2 t and 2 t + 1, where g = lane / 4 and t = lane % 4. The even bytes are a fragment of the even columns, the odd
// bytes of the odd ones. So of each 16 columns of O, the first n8 tile has the even ones and the second the odd ones,
// until finish_output puts them in order. The scale of a key multiplies its column of P.
//
// In fp16, P is at most 2^kLazyRescale = 16, and scales are at most 1000, or 250 with e4m3 numbers (fa2.h). So
// kScaleFactor times their product is finite. This factor keeps bits of small scales. finish_output removes it, and the
// factor of the bytes.
constexpr float kScaleFactor = Elem::kHasRangeOfFp32 ? 1.0f : kFp8 ? 16.0f : 4.0f;
constexpr float kOutputFactor = kByteFactor / kScaleFactor;

static_assert(kParts == 1 && kOutTiles % 2 == 0, "a warp has whole pairs of column tiles");

// Packs half of a fragment of P: an n8 tile, whose keys have these scales.
__device__ __forceinline__ void pack_scaled(uint32 &upper, uint32 &lower, const float (&p)[4], const float2 &scale)
{
    upper = pack2(p[0] * scale.x, p[1] * scale.y);
    lower = pack2(p[2] * scale.x, p[3] * scale.y);
}

// The scales of two neighbouring keys, as P is multiplied by them.
__device__ __forceinline__ float2 scales_of_p(uint32 at)
{
    const float2 scale = read_scales(at);
    return {scale.x * kScaleFactor, scale.y * kScaleFactor};
}

template <class Scores> using MadeP = Exp2P<Scores>;

// O += P V for one tile; P is what softmax_tile left in s. after_step: see products.cuh.
template <class Scale, class AfterStep>
__device__ __forceinline__ void
product_pv(float (&o)[kRowTiles][kOutTiles][4], const float (&s)[kRowTiles][kColTiles][4], RowState &, const Scale &,
           Dropout &dropout, int tile, uint32 v_smem, uint32 lane_values, AfterStep after_step)
{
    const uint32 scales = v_smem + kValueScales + thread_index() % 4 * 8;
#pragma unroll
    for (int step = 0; step < kBc / 16; step++) {
        uint32 a[kRowTiles][4];
        dropout.begin_step(tile, step);
        const float2 left = scales_of_p(scales + scale_offset(step * 16));
        const float2 right = scales_of_p(scales + scale_offset(step * 16 + 8));
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
            pack_scaled(a[m][0], a[m][1], s[m][2 * step], left);
            pack_scaled(a[m][2], a[m][3], s[m][2 * step + 1], right);
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = dropout.apply(a[m][i], m, i % 2, i / 2);
        }
#pragma unroll
        for (int n = 0; n < kOutTiles; n += 4) {
            uint32 b[4];  // 16 columns of keys 0 ... 7 and 8 ... 15, then the next 16 columns
            ldmatrix_x4_trans(b, v_smem + ValueTile::pair_offset(lane_values, n / 4) + step * 16 * ValueTile::kPitch);
#pragma unroll
            for (int i = 0; i < 4 && n + i < kOutTiles; i += 2) {
                const uint32 even[] = {bytes_to_elements<0, 2>(b[i]), bytes_to_elements<0, 2>(b[i + 1])};
                const uint32 odd[] = {bytes_to_elements<1, 3>(b[i]), bytes_to_elements<1, 3>(b[i + 1])};
#pragma unroll
                for (int m = 0; m < kRowTiles; m++) {
                    mma_k16(o[m][n + i], a[m], even[0], even[1]);
                    mma_k16(o[m][n + i + 1], a[m], odd[0], odd[1]);
                }
            }
        }
        after_step(step);
    }
}

// Exchanges the columns of 16 between the lanes of a quad. A lane has columns 4 t ... 4 t + 3: even: columns 4 t and
// 4 t + 2, odd: the two others. It needs columns 2 t and 2 t + 1, which become `even`, and 8 + 2 t and 9 + 2 t.
__device__ __forceinline__ void order_columns(float (&even)[2], float (&odd)[2], int lane)
{
    float ordered[2][2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int from = half * 2 + lane % 4 / 2;
        float x[2][2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            x[i][0] = __shfl_sync(0xffffffffu, even[i], from, 4);
            x[i][1] = __shfl_sync(0xffffffffu, odd[i], from, 4);
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
            ordered[half][i] = lane % 2 == 0 ? x[0][i] : x[1][i];
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        even[i] = ordered[0][i];
        odd[i] = ordered[1][i];
    }
}

// Puts the columns of O in order, and removes the factors.
__device__ __forceinline__ void finish_output(float (&o)[kRowTiles][kOutTiles][4], RowState &, float)
{
    const int lane = thread_index() % 32;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int n = 0; n < kOutTiles; n += 2)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float even[2] = {o[m][n][2 * h] * kOutputFactor, o[m][n][2 * h + 1] * kOutputFactor};
                float odd[2] = {o[m][n + 1][2 * h] * kOutputFactor, o[m][n + 1][2 * h + 1] * kOutputFactor};
                order_columns(even, odd, lane);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    o[m][n][2 * h + i] = even[i];
                    o[m][n + 1][2 * h + i] = odd[i];
                }
            }
}
