#pragma once
#include "forward/int8_queries.cuh"
#include "forward/quantise.cuh"
#include "forward/no_scales.cuh"
#include "forward/loads.cuh"
#include "forward/softmax.cuh"
#include "lib/mma.cuh"

// ---- S = Q K^T in 8-bit integers ---------------------------------------------------------------------------------
//
// Policy of kernels that round Q and K; the others have exact_scores.cuh. quantise.cuh has rounded K. A warp rounds its
// rows of Q when it has read them, with one scale per row. The products are summed in int32 without error. Each score
// is scaled at once and gets the product of its query and the mean key, so all that follows sees true scores. If only
// the softmax follows, it scales the scores of tiles without a mask, and end_scores adds the product with the mean key
// to each row's maximum.
//
// Accumulators start at the bits of 1.5 * 2^23. So the integer sum s is the bits of the float 1.5 * 2^23 + s, while |s|
// < 2^22: 127 * 127 * 256 is less. One multiplication and addition scales it and removes the start.
constexpr float kStart = 12582912.0f;
constexpr int kByteSteps = kKeyBytes / 32;  // k32 steps
using ByteFill = Fill<kBc, kTeamThreads, kKeyColumns>;

static_assert(kQInRegisters && kParts == 1 && kTeams == 1 && !kVInK && !kSplit, "a warp rounds whole rows of Q");
static_assert(127 * 127 * kKeyBytes < 1 << 22, "sums are exact");

// This lane's part of the rows of a warp.
struct Queries {
    uint32 bytes[kRowTiles][kByteSteps][4];
    float scale[kRowTiles][2];  // of rows quad_row, quad_row + 8
    float mean[kRowTiles][2];   // the product of the row and the mean key; in the softmax: in shared memory
    const float *key_scales;    // kScales for each tile
    const float *value_scales;  // one for each tile, if V is rounded
};

// c += a b: a is 16x32 row-major, b is 32x8 column-major. c has the bits of integers. SM 7.5 does it with four m8n8k16
// on the same fragments.
__device__ __forceinline__ void mma_s8_k32(float (&c)[4], const uint32 (&a)[4], uint32 b0, uint32 b1)
{
    uint32 sum[4] = {__float_as_uint(c[0]), __float_as_uint(c[1]), __float_as_uint(c[2]), __float_as_uint(c[3])};
    if constexpr (kTuring) {
#pragma unroll
        for (int i = 0; i < 4; i++)  // rows i % 2 * 8 ..., columns i / 2 * 16 ... of a
            asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+r"(sum[i % 2 * 2]), "+r"(sum[i % 2 * 2 + 1])
                : "r"(a[i]), "r"(i / 2 == 0 ? b0 : b1));
    } else {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        c[i] = __uint_as_float(sum[i]);
}

// Where the mean of a row tile's row lies. rows: of the warp.
__device__ __forceinline__ uint32 mean_place(uint32 rows, int m, int h, int lane)
{
    return rows + (m * 16 + h * 8 + lane / 4) * 4;
}

template <bool kInSoftmax>
__device__ __forceinline__ Queries make_queries(const QueryFragments &q_frag, const Params &p, const BlockCoord &coord,
                                                uint32 rows, int lane)
{
    const int kv_head = coord.kv_head(p);
    const float *mean = mean_key(p, coord.batch, kv_head) + lane % 4 * 2;
    Queries q;
    const int64 first_tile = first_tile_of(p, coord, kv_head);
    q.key_scales = key_scales(p, first_tile);
    q.value_scales = value_scale(p, first_tile);
    each_of<kRowTiles, 2>([&](int m, int h) {
        uint32 most;
        measure_row(q_frag[m], h, mean, most, q.mean[m][h]);
        if (kInSoftmax && lane % 4 == 0)
            store_shared_4(mean_place(rows, m, h, lane), __float_as_uint(q.mean[m][h]));
        const Rounding rounding = rounding_to(most);
        q.scale[m][h] = rounding.scale;
#pragma unroll
        for (int step = 0; step < 2 * kByteSteps; step++)  // columns after the padded ones are 0
            q.bytes[m][step / 2][step % 2 * 2 + h] =
                step < kDepth ? round_four(rounding, q_frag[m][step % kDepth][h], q_frag[m][step % kDepth][h + 2]) : 0;
    });
    return q;
}

// The head pointer of the rows of K that are loaded.
__device__ __forceinline__ const char *loaded_keys(const Params &p, const BlockCoord &coord, int kv_head)
{
    return reinterpret_cast<const char *>(p.partial) + first_tile_of(p, coord, kv_head) * (kBc * kKeyBytes);
}

// Starts copying a share of a tile of K. All rows of a tile exist.
template <bool kFull>
__device__ __forceinline__ void issue_k(KeyFills &fills, const Pages &, const Params &, const BlockCoord &,
                                        const KeyStream &to, const KeyPlan &, Share share, int tile)
{
    fills.k.template issue<true>(ByteFill::Plan(), share, k_stage(to.smem, to.team, tile), kBc,
                                 [&](int r) { return to.k + (int64(tile) * kBc + r) * kKeyBytes; });
}

// The scales of this lane's keys of a tile, by groups of keys, and the scale of its values.
struct KeyScale {
    float of_keys[kScaleGroups], of_values;

    __device__ __forceinline__ KeyScale(const Queries &q, int tile)
        : of_values(kFp8Values ? __ldg(q.value_scales + tile) : 1.0f)
    {
#pragma unroll
        for (int group = 0; group < kScaleGroups; group++)
            of_keys[group] = __ldg(q.key_scales + (tile * kScales + group * 4 + threadIdx.x % 4));
    }
};

// S = Q K^T for one tile, as integers that scale_scores makes scores of.
template <class AfterStep>
__device__ __forceinline__ void product_qk(float (&s)[kRowTiles][kColTiles][4], const Queries &q, uint32, uint32 k_smem,
                                           uint32, uint32 lane_cols, AfterStep after_step)
{
#pragma unroll
    for (int step = 0; step < kByteSteps; step++) {
#pragma unroll
        for (int n = 0; n < kColTiles; n += 2) {
            uint32 b[4];  // columns n * 8 ... + 15: b[0], b[1] of the first n8 tile, b[2], b[3] of the next
            ldmatrix_x4(b, k_smem + KeyTile::pair_offset(lane_cols, step) + n * 8 * KeyTile::kPitch);
            each_of<kRowTiles, 2>([&](int m, int i) {
                float(&c)[4] = s[m][n + i];
                if (step == 0)
                    c[0] = c[1] = c[2] = c[3] = kStart;
                mma_s8_k32(c, q.bytes[m][step], b[2 * i], b[2 * i + 1]);
            });
        }
        after_step(step);
    }
}

// Makes scores of the sums, or says how the softmax does (kInSoftmax): by the multiplication that it has anyway. Then
// the product of a query and the mean key comes last, because it changes a row's maximum and nothing else. A mask needs
// scores: a hidden score is -infinity, and the factor may be NaN.
template <bool kInSoftmax, bool kMasked>
__device__ __forceinline__ auto scale_scores(float (&s)[kRowTiles][kColTiles][4], const Queries &q, const KeyScale &key,
                                             uint32, int)
{
    if constexpr (kInSoftmax && !kMasked) {
        ScaledScores<kScaleGroups> scores;
        scores.start = kStart;
#pragma unroll
        for (int group = 0; group < kScaleGroups; group++)
            each_of<kRowTiles, 2>(
                [&](int m, int h) { scores.factor[group][m][h] = q.scale[m][h] * key.of_keys[group]; });
        return scores;
    } else {
        constexpr int kTiles = kColTiles / kScaleGroups;  // of a group
        each_of<kRowTiles, 2>([&](int m, int h) {
#pragma unroll
            for (int group = 0; group < kScaleGroups; group++) {
                const float factor = q.scale[m][h] * key.of_keys[group];
                const float added = kInSoftmax ? -kStart * factor : fmaf(-kStart, factor, q.mean[m][h]);
#pragma unroll
                for (int n = group * kTiles; n < (group + 1) * kTiles; n++)
#pragma unroll
                    for (int e = 2 * h; e < 2 * h + 2; e++)
                        s[m][n][e] = fmaf(s[m][n][e], factor, added);
            }
        });
        return ScoresThemselves{};
    }
}

// Adds each row's product with the mean key to its maximum. make_queries has stored the products in shared memory,
// because registers are scarce in the mainloop, whose barriers order that before this.
template <bool kInSoftmax> __device__ __forceinline__ void end_scores(RowState &row, uint32 rows, int lane)
{
    if constexpr (kInSoftmax)
        each_of<kRowTiles, 2>([&](int m, int h) { row.max[m][h] += load_shared_4(mean_place(rows, m, h, lane)); });
}
