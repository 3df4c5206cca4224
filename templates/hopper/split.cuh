#pragma once
#include "forward/parts.cuh"
#include "hopper/split_consumer.cuh"
#include "hopper/split_producer.cuh"
#include "lib/early.cuh"

// ---- forward, keys divided among blocks --------------------------------------------------------------------
//
// The kernel of fwd_splitkv_sm90, for V that is the first columns of K. Tiles are processed from the last to the first,
// so those that need a mask come first. One warpgroup copies tiles (producer); two multiply (consumers). Both consumers
// have the same rows. Each computes S and P of half the keys of a tile, gives its P to the other, and accumulates half
// of the columns of O. The first columns of Q stay in registers, because both products are limited by reads of shared
// memory.
//
//     producer    wait until a stage is empty | copy K(j) ...
//     consumers   wait for K(j) | S = Q K^T of own keys | softmax | exchange P | O += P V of own columns

// The kernel; kThreads + kFeedThreads threads.
__device__ __forceinline__ void forward(const Params &p)
{
    extern __shared__ __align__(1024) char shared[];
    let_next_step_begin();
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const int lane = threadIdx.x % 32;
    const int part = __shfl_sync(0xffffffffu, own_part(), 0);
    const int warp_row = threadIdx.x / 32 % 4 * 16;  // this warp's first row in the block
    const BlockCoord coord(p, WorkOfGrid());
    if (kLengths && coord.batch < 0)
        return;
    const TileRange tiles(p, coord);

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; stage++) {
            barrier_init(tile_is_there(smem, stage), kFeedThreads);
            barrier_init(place_is_free(smem, stage), kThreads / 32);
        }
        barrier_init_fence();
    }
    __syncthreads();  // the barriers are there
    if (part == kParts) {
        produce(p, coord, tiles, smem);
        return;
    }
    take_registers<kProductRegisters>();

    float o[kRowTiles][kOutTiles][4] = {};
    RowState row;
    begin_rows(row, p);

    if (tiles.count > tiles.first) {
        float s[kRowTiles][kColTiles][4];
        uint32 own[kOwnSteps][4], other[kOwnSteps][4], q[kQSteps][4];
        int tile = tiles.count - 1;
        uint32 parity = 0;
        Rows rows{p, coord, tiles, smem, lane, part, warp_row, o, row, s, own, other, q, tile, parity};
        rows.load_q();
        if constexpr (kWindow != Window::kNone) {
#pragma unroll 1
            for (; tile >= tiles.first; tile--)
                if (tile >= tiles.unmasked || tile < tiles.plain)
                    rows.template step<true>();
                else
                    rows.template step<false>();
        } else {
#pragma unroll 1
            for (; tile >= max(tiles.unmasked, tiles.first); tile--)
                rows.template step<true>();
#pragma unroll 1
            for (; tile >= tiles.first; tile--)
                rows.template step<false>();
        }
        add_sums(smem, part, row);
    }
    write_rows<void>(p, coord, o, row, smem, warp_row, lane);
}
