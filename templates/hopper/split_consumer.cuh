#pragma once
#include "features/modifier.cuh"
#include "forward/tiles.cuh"
#include "hopper/fill_pages.cuh"
#include "hopper/split_products.cuh"
#include "hopper/tma.cuh"

// ---- consumer: a warpgroup that multiplies --------------------------------------------------------------------------
//
// split.cuh has the loop over tiles, and the timeline. Rows::step is one step of it.

// The state of the 64 rows, which both warpgroups have, and the steps of the mainloop.
struct Rows {
    const Params &p;
    const BlockCoord &coord;
    const TileRange &tiles;
    const uint32 smem;
    const int lane, part, warp_row;
    float (&o)[kRowTiles][kOutTiles][4];
    RowState &row;
    float (&s)[kRowTiles][kColTiles][4];
    uint32 (&own)[kOwnSteps][4], (&other)[kOwnSteps][4];  // P of own keys, and of the other half
    uint32 (&q)[kQSteps][4];
    int &tile;
    uint32 &parity;

    // Copies Q together with the other warpgroup, then reads its first columns into registers.
    __device__ __forceinline__ void load_q()
    {
        fill_pages<kBr, kThreads>(smem, coord.rows - coord.first_row, [&](int r) {
            return p.q + coord.offset(p, p.q_stride, coord.first_row + r) * kElemBytes;
        });
        cp_async_commit();
        cp_async_wait<0>();
        fence_products();
        named_barrier(5, kThreads);  // Q is complete
        read_q(q, smem, warp_row, lane);
    }

    // Turns S into P; returns how O must be rescaled.
    template <bool kMasked> __device__ __forceinline__ Rescale softmax()
    {
        modify_scores(s, p);
        if constexpr (kMasked)
            mask_scores(s, p, coord, coord.first_row + warp_row, tile, lane);
        return softmax_tile<kMasked>(s, row, p.scale_log2);
    }

    __device__ __forceinline__ uint32 v_smem() const
    {
        return k_stage(smem, tile) + part * (kHeadDimV / 64 / kParts) * kTilePageBytes;
    }

    // One step of the mainloop.
    template <bool kMasked> __device__ __forceinline__ void step()
    {
        const int before = tiles.count - 1 - tile;
        barrier_wait(tile_is_there(smem, tile), parity);
        parity ^= before % kStages;
        start_scores(s, q, computed_again(smem), k_stage(smem, tile) + part * kOwnKeys * kPageRowBytes);
        wgmma_wait<0>();
        pin(s);
        softmax<kMasked>().apply(o);
        pack_scores(s, own);
        exchange(smem, part, own, other, row, o, p.scale_log2);
        pin(o);
        start_output(o, own, other, part, v_smem());
        wgmma_wait<0>();
        pin(o);
        if (lane == 0)
            barrier_arrive(place_is_free(smem, tile));  // one arrival per warp
    }
};
