#pragma once
#include "forward/parts.cuh"
#include "forward/softmax.cuh"
#include "lib/mma_fp16.cuh"
#include "lib/ptx.cuh"

// ---- O += P V with fp16 sums --------------------------------------------------------------------------------------
//
// P V of a tile is summed in fp16, and the tile's sums are added to O in fp32. GeForce cards multiply twice as fast
// with fp16 sums. P is fp16 for all element types, and V of bf16 is converted after ldmatrix.
//
// First all of P is packed: it takes the place of the scores, in half of their registers. The other half is for the
// sums of kSumTiles column tiles, which are computed together.
//
// P is at most 2^kLazyRescale, so the sums are finite while |V| is at most 65504 / (kBc * 2^kLazyRescale).

// n8 tiles of O that are summed together. With two, ptxas loads V so far ahead that kernels spill.
constexpr int kSumTiles = kColTiles < 8 ? kColTiles : 8;

using PackedP = uint32[kBc / 16][kRowTiles][4];  // the A fragments of each k16 step

// bf16 with dropout: the final scale expects P multiplied by 2^-7 (keep_scale in features/dropout.cuh). The factor is
// applied to the sums instead, because small elements of P would lose bits in fp16.
constexpr float kSumFactor = kDropout ? Elem::kOneOfFp16 : 1.0f;

// Applies dropout to two packed elements. A template, so that kernels without dropout need no `keep`.
template <class D> __device__ __forceinline__ uint32 drop_fp16(const D &dropout, uint32 elements, int m, int h, int n)
{
    if constexpr (kDropout)
        return fp16::multiply(elements, dropout.keep(m, h, n));
    else
        return elements;
}

// Packs P, which softmax_tile left in s.
__device__ __forceinline__ void pack_p(PackedP &p, const float (&s)[kRowTiles][kColTiles][4], Dropout &dropout,
                                       int tile)
{
#pragma unroll
    for (int step = 0; step < kBc / 16; step++) {
        dropout.begin_step(tile, step);
        each_of<kRowTiles, 4>([&](int m, int i) {
            const float(&tile_of_s)[4] = s[m][2 * step + i / 2];
            const uint32 elements = fp16::pack(tile_of_s[i % 2 * 2], tile_of_s[i % 2 * 2 + 1]);
            p[step][m][i] = drop_fp16(dropout, elements, m, i % 2, i / 2);
        });
    }
}

// Adds the sums of n8 tile n of O.
__device__ __forceinline__ void add_sums(float (&o)[kRowTiles][kOutTiles][4], const uint32 (&sums)[kRowTiles][2], int n)
{
    each_of<kRowTiles, 2>([&](int m, int h) {
        const float2 sum = fp16::unpack(sums[m][h]);
        o[m][n][2 * h] += sum.x * kSumFactor;
        o[m][n][2 * h + 1] += sum.y * kSumFactor;
    });
}

// O += P V for one tile. after_step: see products.cuh.
template <class Scale, class AfterStep>
__device__ __forceinline__ void
product_pv(float (&o)[kRowTiles][kOutTiles][4], const float (&s)[kRowTiles][kColTiles][4], RowState &, const Scale &,
           Dropout &dropout, int tile, uint32 v_smem, uint32 lane_values, AfterStep after_step)
{
    PackedP p;
    pack_p(p, s, dropout, tile);
#pragma unroll
    for (int first = 0; first < kOutTiles; first += kSumTiles) {
        uint32 sums[kSumTiles][kRowTiles][2] = {};
#pragma unroll
        for (int step = 0; step < kBc / 16; step++) {
#pragma unroll
            for (int n = 0; n < kSumTiles && first + n < kOutTiles; n += 2) {
                uint32 b[4];
                ldmatrix_x4_trans(b, v_smem + ValueTile::pair_offset(lane_values, (first + n) / 2 * kParts) +
                                         step * 16 * ValueTile::kPitch);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    b[i] = elements_to_fp16(b[i]);
#pragma unroll
                for (int m = 0; m < kRowTiles; m++) {
                    mma_k16_fp16(sums[n][m], p[step][m], b[0], b[1]);
                    if (first + n + 1 < kOutTiles)  // an odd count: the last columns are padding
                        mma_k16_fp16(sums[n + 1][m], p[step][m], b[2], b[3]);
                }
            }
            if (first == 0)
                after_step(step);
        }
#pragma unroll
        for (int n = 0; n < kSumTiles && first + n < kOutTiles; n++)
            add_sums(o, sums[n], first + n);
    }
}

template <class Scores> using MadeP = Exp2P<Scores>;

// O needs no more than the division by the sums.
__device__ __forceinline__ void finish_output(const float (&)[kRowTiles][kOutTiles][4], RowState &, float) {}
