#pragma once
#include "forward/int8_queries.cuh"
#include "hopper/bytes_values.cuh"
#include "hopper/rescale.cuh"

// ---- the softmax of 8-bit products ---------------------------------------------------------------------------------
//
// Sums of Q K^T begin at the bits of 1.5 * 2^23, as in int8_scores.cuh. So their bits are those of floats, which are
// compared and masked as they are. A lane's scores in a group of a tile's keys have one scale. So a score is the sum
// times a factor, plus a term, and P takes one multiplication and addition. The product of a query and the mean key
// changes LSE alone.
constexpr float kStart = 12582912.0f;
static_assert(127 * 127 * kHeadDim < 1 << 22, "sums are exact");

// This lane's rows of Q: quad_row and quad_row + 8.
struct Queries {
    float scale[2], mean[2];  // mean: the product of the row and the mean key
};

// The scales of a lane's keys in a tile.
struct KeyScales {
    float of_group[kScaleGroups];

    __device__ __forceinline__ explicit KeyScales(const float *scales)
    {
#pragma unroll
        for (int group = 0; group < kScaleGroups; group++)
            of_group[group] = __ldg(scales + 4 * group);
    }
};

// What makes scores of a tile's sums.
struct ScoreScale {
    float factor[kScaleGroups][2];

    __device__ __forceinline__ ScoreScale(const Queries &q, const KeyScales &keys)
    {
#pragma unroll
        for (int group = 0; group < kScaleGroups; group++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float product = q.scale[h] * keys.of_group[group];
                factor[group][h] = product == 0.0f ? 1e-30f : product;  // so that a masked score stays -infinity
            }
    }
};

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
        q.scale[h] = rounding.scale;
#pragma unroll
        for (int step = 0; step < kDepth; step++)
            store_shared_4(smem + QueryBytes::place(warp_row + h * 8 + lane / 4, step * 16) + lane % 4 * 4,
                           round_four(rounding, q_frag[step][h], q_frag[step][h + 2]));
    }
    return q;
}

// Updates the maxima from the sums of a tile, and the row sums. Returns how O must be rescaled.
template <bool kUnseen>
__device__ __forceinline__ Rescale raise_maxima(const float (&s)[kRowTiles][kColTiles][4], const ScoreScale &scale,
                                                RowState &row, float scale_log2)
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
            const float factor = scale.factor[group][h];
            tile_max[h] = fmaxf(tile_max[h], fmaf(x, factor, -kStart * factor));
        }
        grown |= (tile_max[h] - row.max[0][h]) * scale_log2 > kLazyRescale;
    }
    rescale.wanted = __any_sync(0xffffffffu, grown);
    if (rescale.wanted)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            rescale.by[0][h] = raise_maximum<kUnseen>(row.max[0][h], tile_max[h], scale_log2);
            row.sum[0][h] *= rescale.by[0][h];
        }
    return rescale;
}

// Turns the sums of a tile into P * 2^kShift, and adds to the row sums.
template <bool kUnseen>
__device__ __forceinline__ void make_p(float (&s)[kRowTiles][kColTiles][4], const ScoreScale &scale, RowState &row,
                                       float scale_log2)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const bool none = kUnseen && row.max[0][h] == minus_infinity();
        const float shift = kShift - (none ? 0.0f : row.max[0][h] * scale_log2);
#pragma unroll
        for (int group = 0; group < kScaleGroups; group++) {
            const float factor = scale.factor[group][h] * scale_log2, added = fmaf(-kStart, factor, shift);
#pragma unroll
            for (int n = group * kGroupTiles; n < (group + 1) * kGroupTiles; n++)
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) {
                    s[0][n][e] = exp2_approx(fmaf(s[0][n][e], factor, added));
                    row.sum[0][h] += s[0][n][e];
                }
        }
    }
}

// Packs P to the A fragments of k32 steps.
__device__ __forceinline__ void pack_p(const float (&s)[kRowTiles][kColTiles][4], uint32 (&p)[kBc / 32][4])
{
#pragma unroll
    for (int step = 0; step < kBc / 32; step++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int n = 4 * step + i / 2 * 2, e = i % 2 * 2;
            p[step][i] = pack_e4m3(s[0][n][e], s[0][n][e + 1], s[0][n + 1][e], s[0][n + 1][e + 1]);
        }
}

// Ends the rows: sums without the shift, and maxima of scores of all K.
__device__ __forceinline__ void finish_rows(const Queries &q, RowState &row)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        row.sum[0][h] *= kUnshift;
        row.max[0][h] += q.mean[h];
    }
}
