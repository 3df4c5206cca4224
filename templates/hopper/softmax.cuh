#pragma once
#include "forward/softmax.cuh"
#include "lib/mma.cuh"

// ---- the softmax of kernels on wgmma ----------------------------------------------------------------------------

// Packs P to 16 bits: two column tiles of an accumulator have the layout of a 16-column A fragment.
__device__ __forceinline__ void pack_scores(const float (&s)[1][kColTiles][4], uint32 (&p)[kColTiles / 2][4])
{
    each_of<kColTiles / 2, 4>([&](int step, int e) {
        p[step][e] = pack2(s[0][2 * step + e / 2][e % 2 * 2], s[0][2 * step + e / 2][e % 2 * 2 + 1]);
    });
}

// The factors of O, which are applied once the product that adds to O is done.
struct Rescale {
    float by[kRowTiles][2];
    bool wanted;  // some row of the warp needs rescaling; `by` is set only then

    __device__ __forceinline__ void apply(float (&o)[kRowTiles][kOutTiles][4]) const
    {
        if (wanted)
            each_element(o, [&](float &x, int m, int, int e) { x *= by[m][e / 2]; });
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
    if (rescale.wanted)
        each_of<kRowTiles, 2>([&](int m, int h) {
            rescale.by[m][h] = raise_maximum<kUnseen>(row.max[m][h], tile_max[m][h], scale_log2);
            row.sum[m][h] *= rescale.by[m][h];
        });
    make_p_of<kUnseen, Exp2P>(s, scores, row, scale_log2);
    return rescale;
}
