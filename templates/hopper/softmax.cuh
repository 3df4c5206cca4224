#pragma once
#include "forward/softmax.cuh"

// ---- the softmax of kernels on wgmma ----------------------------------------------------------------------------

// The factors of O, which are applied once the product that adds to O is done.
struct Rescale {
    float by[kRowTiles][2];
    bool wanted;  // some row of the warp needs rescaling; `by` is set only then

    __device__ __forceinline__ void apply(float (&o)[kRowTiles][kOutTiles][4]) const
    {
        if (!wanted)
            return;
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int n = 0; n < kOutTiles; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    o[m][n][e] *= by[m][e / 2];
    }
};

// As softmax_tile for mma.sync, but returns how O must be rescaled.
template <bool kUnseen, class Scores = ScoresThemselves>
__device__ __forceinline__ Rescale softmax_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row, float scale_log2,
                                                const Scores &scores = {})
{
    Rescale rescale;
    float tile_max[kRowTiles][2];  // of this lane's columns; reduced over the quad only if a row needs it
    const bool grown = find_maxima(s, scores, row, scale_log2, tile_max);
    rescale.wanted = __any_sync(0xffffffffu, grown);
    if (rescale.wanted) {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                rescale.by[m][h] = raise_maximum<kUnseen>(row.max[m][h], tile_max[m][h], scale_log2);
                row.sum[m][h] *= rescale.by[m][h];
            }
        }
    }
    make_p_of<kUnseen>(s, scores, row, scale_log2);
    return rescale;
}
