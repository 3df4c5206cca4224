#pragma once
#include "forward/tiles.cuh"
#include "hopper/fill_pages.cuh"
#include "hopper/tma.cuh"
#include "hopper/wgmma.cuh"

// ---- producer: the warpgroup that copies tiles ---------------------------------------------------------------------
//
// The kernel of split.cuh calls `produce` in the last warpgroup.

// Copies the tiles in order, each when its stage is empty.
template <class Fill> __device__ __forceinline__ void feed(const TileRange &tiles, uint32 smem, Fill fill)
{
    static_assert(kStages == 2, "the first two tiles are under way together");
    uint32 parity = 0;
#pragma unroll 1
    for (int tile = tiles.count - 1; tile >= tiles.first; tile--) {
        const int step = tiles.count - 1 - tile;
        if (step >= kStages) {
            barrier_wait(place_is_free(smem, tile), parity);
            parity ^= step % kStages;
        }
        fill(tile);
        cp_async_commit();
        if (step == 0 && tile > tiles.first)
            continue;
        if (step == 1) {
            cp_async_wait<1>();
            fence_products();
            barrier_arrive(tile_is_there(smem, tile + 1));
        }
        cp_async_wait<0>();
        fence_products();
        barrier_arrive(tile_is_there(smem, tile));
    }
}

__device__ __forceinline__ void produce(const Params &p, const BlockCoord &coord, const TileRange &tiles, uint32 smem)
{
    give_registers<kFeedRegisters>();
    const char *batch_head = key_head(p.k, p.k_stride, coord, coord.kv_head(p));
    feed(tiles, smem, [&](int tile) {
        const KeyRows rows(p, coord, tile);
        fill_pages<kBc, kFeedThreads>(k_stage(smem, tile), coord.seq_k(p) - tile * kBc,
                                      [&](int r) { return rows.at(batch_head, p.k_stride, r); });
    });
}
