#pragma once
#include "forward/fp8_p.cuh"
#include "forward/softmax.cuh"
#include "lib/mma_fp8.cuh"
#include "lib/ptx.cuh"

// ---- O += P V in e4m3 numbers ---------------------------------------------------------------------------------------
//
// Policy of kernels that round P and V; the step before has rounded V (fp8_values.cuh). softmax_tile leaves scores from
// 0 to 1, whose bits are P's (fp8_p.cuh). P V of a tile is summed apart and added to O in fp32, times the tile's scale
// of V: the hardware's sums of e4m3 products keep fewer bits than fp32. P's own sums are a product with ones, so they
// are of the numbers that multiply V.

// n8 tiles of O that are summed together.
constexpr int kSumTiles = kOutTiles < 4 ? kOutTiles : 4;

template <class Scores> using MadeP = Fp8P<Scores>;
using PackedP = uint32[kBc / 32][kRowTiles][4];  // the A fragments of each k32 step

static_assert(kBc % 32 == 0 && kHeadDimV == kHeadDim && kHeadDim % 16 == 0 && kParts == 1 && kTeams == 1,
              "rows and columns are whole k32 steps and pairs of n8 tiles");

// Packs P, which softmax_tile left in s.
__device__ __forceinline__ void pack_p(PackedP &p, const float (&s)[kRowTiles][kColTiles][4])
{
#pragma unroll
    for (int step = 0; step < kBc / 32; step++)
        each_of<kRowTiles, 4>([&](int m, int i) {
            const int n = 4 * step + i / 2 * 2, e = i % 2 * 2;
            const uint32 left = p_bits(fp16::pack(s[m][n][e], s[m][n][e + 1]));
            const uint32 right = p_bits(fp16::pack(s[m][n + 1][e], s[m][n + 1][e + 1]));
            p[step][m][i] = __byte_perm(left, right, 0x6420);
        });
}

// Adds P to the sums of rows. Each lane of a quad gets the whole sum of a row, of which it takes a quarter.
__device__ __forceinline__ void add_to_row_sums(RowState &row, const PackedP &p)
{
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
        float sums[4] = {};
#pragma unroll
        for (int step = 0; step < kBc / 32; step++)
            mma_k32_fp8(sums, p[step][m], kFourOnes, kFourOnes);
#pragma unroll
        for (int h = 0; h < 2; h++)
            row.sum[m][h] = fmaf(sums[2 * h], kUnshift / 4, row.sum[m][h]);
    }
}

// O += P V for one tile. after_step: see products.cuh.
template <class Scale, class AfterStep>
__device__ __forceinline__ void product_pv(float (&o)[kRowTiles][kOutTiles][4],
                                           const float (&s)[kRowTiles][kColTiles][4], RowState &row, const Scale &scale,
                                           Dropout &, int, uint32 v_smem, uint32 lane_values, AfterStep after_step)
{
    PackedP p;
    pack_p(p, s);
    add_to_row_sums(row, p);
#pragma unroll
    for (int first = 0; first < kOutTiles; first += kSumTiles) {
        float sums[kSumTiles][kRowTiles][4] = {};
#pragma unroll
        for (int step = 0; step < kBc / 32; step++) {
#pragma unroll
            for (int n = 0; n < kSumTiles && first + n < kOutTiles; n += 2) {
                uint32 b[4];  // columns n * 8 ... + 15 of V: b[0], b[1] of the first n8 tile, b[2], b[3] of the next
                ldmatrix_x4(b,
                            v_smem + ValueTile::pair_offset(lane_values, step) + (first + n) * 8 * ValueTile::kPitch);
                each_of<kRowTiles, 2>(
                    [&](int m, int i) { mma_k32_fp8(sums[n + i][m], p[step][m], b[2 * i], b[2 * i + 1]); });
            }
            if (first == 0)
                after_step(step);
        }
#pragma unroll
        for (int n = 0; n < kSumTiles && first + n < kOutTiles; n++)
            each_of<kRowTiles, 4>(
                [&](int m, int e) { o[m][first + n][e] = fmaf(sums[n][m][e], scale.of_values, o[m][first + n][e]); });
    }
}

// Subtracts from each maximum the factor by which P is too large, for LSE.
__device__ __forceinline__ void finish_output(const float (&)[kRowTiles][kOutTiles][4], RowState &row, float scale_log2)
{
    each_of<kRowTiles, 2>([&](int m, int h) { row.max[m][h] = maximum_for_lse(row.max[m][h], scale_log2); });
}
