#pragma once
#include "backward/dq_sums.cuh"
#include "backward/cursor.cuh"
#include "backward/products.cuh"
#include "backward/warps.cuh"

// ---- the dQ step: dQ += dS K of a tile of queries -----------------------------------------------------------------
//
// Called by `step` of bwd.cuh after the barrier that completes dS^T. A warp has some rows and columns of the tile, and
// all keys of the block. Its result is added to the sums in the workspace (dq_sums.cuh); if the block has all keys of a
// head, and they are one tile, it is written at once. counter: with kDqInOrder, receives the counter of the tile.
__device__ __forceinline__ void add_tile_to_dq(const Params &p, const BlockCoord &coord, const WarpCoord &own,
                                               const LaneOffsets &offsets, TileAreas areas, const Cursor &at,
                                               int first_head, uint32 smem, uint32 *&counter)
{
    const int64 batch_head = int64(coord.batch) * p.heads_q + first_head + at.head;
    float *sum = p.dq_sum + (batch_head * p.q_tiles + at.tile) * kDqTile + own.warp * kDqWarpPart;
    uint32 before = 0, seen = 0;
    if constexpr (kDqInOrder) {
        counter = turn_counter(p, coord, batch_head, at.tile);
        before = blocks_before(p, coord, at.tile);
        seen = own.lane == 0 ? load_counter(counter) : 0;
    }
#pragma unroll 1
    for (int part = 0; part < kDqParts; part++) {
        const int first = own.row_warp * kDqRowTiles + part * kDqPartTiles;  // m16 tile
        constexpr int kPartSize = kDqWarpPart / kDqParts;
        DqTile dq;
        clear(dq);
        product_of_columns<kColWarps, kBc / 16>(
            dq,
            [&](int step, uint32(&a)[kDqPartTiles][4]) {
#pragma unroll
                for (int m = 0; m < kDqPartTiles; m++)
                    ldmatrix_x4_trans(a[m], areas.scores +
                                                ScoreTile::chunk_offset(step * 16 + own.lane % 8 + own.lane / 16 * 8,
                                                                        (first + m) * 2 + own.lane / 8 % 2));
            },
            smem + kKArea, pair_offset(offsets.rows, own.col_warp));
        if (kDqInOrder && part == 0)
            await_turn(counter, seen, before, own.lane);
        if (kDqBlock && p.k_tiles == 1)
            write_dq(p, coord.batch, first_head + at.head, at.tile, first, own.col_warp, dq, own.lane);
        else if constexpr (kVarlen)
            add_dq(dq_sums(p, coord, batch_head, at.tile, first, own.col_warp), dq, own.lane,
                   p.seq_q - at.tile * kBr - first * 16, own.col_warp);
        else
            add_dq(sum + part * kPartSize, dq, own.lane);
    }
}
