#pragma once
#include "forward/parts.cuh"
#include "forward/softmax.cuh"
#include "lib/mma.cuh"
#include "lib/ptx.cuh"

// O += P V for one tile; P is what softmax_tile left in s. A step of the mainloop of fwd.cuh calls it. after_step: see
// products.cuh.
template <class Scale, class AfterStep>
__device__ __forceinline__ void
product_pv(float (&o)[kRowTiles][kOutTiles][4], const float (&s)[kRowTiles][kColTiles][4], RowState &, const Scale &,
           Dropout &dropout, int tile, uint32 v_smem, uint32 lane_values, AfterStep after_step)
{
#pragma unroll
    for (int step = 0; step < kBc / 16; step++) {
        uint32 a[kRowTiles][4];
        dropout.begin_step(tile, step);
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
            const float(&left)[4] = s[m][2 * step];
            const float(&right)[4] = s[m][2 * step + 1];
            a[m][0] = pack2(left[0], left[1]);
            a[m][1] = pack2(left[2], left[3]);
            a[m][2] = pack2(right[0], right[1]);
            a[m][3] = pack2(right[2], right[3]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = dropout.apply(a[m][i], m, i % 2, i / 2);
        }
#pragma unroll
        for (int n = 0; n < kOutTiles; n += 2) {
            uint32 b[4];
            ldmatrix_x4_trans(b, v_smem + ValueTile::pair_offset(lane_values, n / 2 * kParts) +
                                     step * 16 * ValueTile::kPitch);
#pragma unroll
            for (int m = 0; m < kRowTiles; m++) {
                mma_k16(o[m][n], a[m], b[0], b[1]);
                if (n + 1 < kOutTiles)  // an odd count: the last columns are padding
                    mma_k16(o[m][n + 1], a[m], b[2], b[3]);
            }
        }
        after_step(step);
    }
}

template <class Scores> using MadeP = Exp2P<Scores>;

// O needs no more than the division by the sums.
__device__ __forceinline__ void finish_output(const float (&)[kRowTiles][kOutTiles][4], RowState &, float) {}
