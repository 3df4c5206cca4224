#pragma once
#include "forward/fp8_values.cuh"
#include "forward/int8_queries.cuh"
#include "hopper/bytes_tiles.cuh"
#include "hopper/softmax.cuh"

// ---- the softmax of 8-bit products ---------------------------------------------------------------------------------
//
// Sums of Q K^T begin at the bits of 1.5 * 2^23, as in int8_scores.cuh. So their bits are those of floats, which are
// compared and masked as they are. A lane's scores in a group of a tile's keys have one scale. So a score is the sum
// times a factor, plus a term. The product of a query and the mean key changes LSE alone.
//
// P is made of a score without exp2 (fp8_p.cuh).
constexpr float kStart = 12582912.0f;
static_assert(127 * 127 * kHeadDim < 1 << 22, "sums are exact");

// This lane's rows of Q: quad_row and quad_row + 8.
struct Queries {
    float scale[2];  // makes scores, in their unit, of integers
    float mean[2];   // the product of the row and the mean key
};

// The factors that turn a tile's sums, less kStart, into scores: for each group of keys and each row.
using Factors = float[kScaleGroups][2];

constexpr int kGroupTiles = kColTiles / kScaleGroups;  // n8 column tiles of a group
static_assert(kBc % (8 * kScaleGroups) == 0, "groups are whole column tiles");

// Rounds a warpgroup's rows of Q in their place, where TMA has put them. A warp reads and writes rows of its own.
__device__ __forceinline__ Queries round_queries(const Params &p, const BlockCoord &coord, int lane, uint32 smem)
{
    const int warp_row = threadIdx.x % 128 / 32 * 16, read_row = warp_row + lane % 16;
    const float *mean = mean_key(p, coord.batch, coord.kv_head(p)) + lane % 4 * 2;
    const uint32 from = smem + read_row * kPageRowBytes + (lane / 16 ^ read_row % 8) * 16;
    uint32 q_frag[kDepth][4];
    Queries q;
#pragma unroll
    for (int step = 0; step < kDepth; step++)
        ldmatrix_x4(q_frag[step], (from ^ step % 4 * 32) + step / 4 * kQPageBytes);
    __syncwarp();  // the warp's rows are read before they are overwritten
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32 most;
        measure_row(q_frag, h, mean, most, q.mean[h]);
        const Rounding rounding = rounding_to(most);
        q.scale[h] = rounding.scale * p.scale_log2 * kStep;
#pragma unroll
        for (int step = 0; step < kDepth; step++)
            store_shared_4(smem + QueryBytes::place(warp_row + h * 8 + lane / 4, step * 16) + lane % 4 * 4,
                           round_four(rounding, q_frag[step][h], q_frag[step][h + 2]));
    }
    return q;
}

// Updates the maxima from the sums of a tile. Returns how O and the row sums must be rescaled. A scale that is not
// finite makes the row's sum NaN.
template <bool kUnseen>
__device__ __forceinline__ Rescale raise_maxima(const float (&s)[kRowTiles][kColTiles][4], const Factors &factors,
                                                RowState &row)
{
    Rescale rescale;
    float tile_max[2];
    bool grown = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        tile_max[h] = minus_infinity();
#pragma unroll
        for (int group = 0; group < kScaleGroups; group++) {
            float x = minus_infinity();
#pragma unroll
            for (int n = group * kGroupTiles; n < (group + 1) * kGroupTiles; n++)
                x = fmaxf(x, fmaxf(s[0][n][2 * h], s[0][n][2 * h + 1]));
            const float factor = factors[group][h];
            tile_max[h] = fmaxf(tile_max[h], (x - kStart) * factor);
            row.sum[0][h] = fmaf(kUnseen && x == minus_infinity() ? 0.0f : factor, 0.0f, row.sum[0][h]);
        }
        grown |= tile_max[h] - row.max[0][h] > kLazyRescale * kStep;
    }
    rescale.wanted = __any_sync(0xffffffffu, grown);
    if (rescale.wanted)
#pragma unroll
        for (int h = 0; h < 2; h++)
            rescale.by[0][h] = raise_maximum<kUnseen>(row.max[0][h], tile_max[h], 1 / kStep);
    return rescale;
}

// The bits of P of a tile: of two neighbouring columns in the bytes 0 and 2 of a word.
using PBits = uint32[kColTiles][2];

// Turns the sums of a tile into bits of P.
template <bool kUnseen>
__device__ __forceinline__ void make_p(const float (&s)[kRowTiles][kColTiles][4], PBits &bits, const Factors &factors,
                                       const RowState &row)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float shift = kOne - (kUnseen && row.max[0][h] == minus_infinity() ? 0.0f : row.max[0][h]);
#pragma unroll
        for (int n = 0; n < kColTiles; n++) {
            const float factor = factors[n / kGroupTiles][h], term = fmaf(-kStart, factor, shift);
            const float low = __saturatef(fmaf(s[0][n][2 * h], factor, term));
            const float high = __saturatef(fmaf(s[0][n][2 * h + 1], factor, term));
            bits[n][h] = p_bits(fp16::pack(low, high));
        }
    }
}

// Packs P to the A fragments of k32 steps.
__device__ __forceinline__ void pack_p(const PBits &bits, uint32 (&p)[kBc / 32][4])
{
    each_of<kBc / 32, 4>([&](int step, int i) {
        const int n = 4 * step + i / 2 * 2, h = i % 2;
        p[step][i] = __byte_perm(bits[n][h], bits[n + 1][h], 0x6420);
        asm volatile("" : "+r"(p[step][i]));  // it is there before the fence of the product
    });
}

// Ends the rows: sums without the shift, and maxima of scores of all K, for LSE.
__device__ __forceinline__ void finish_rows(const Queries &q, RowState &row, float scale_log2)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        row.sum[0][h] *= kUnshift;
        row.max[0][h] = (row.max[0][h] / kStep - kQuarter - kLog2OfMean) / scale_log2 + q.mean[h];
    }
}
