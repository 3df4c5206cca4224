#pragma once
#include "hopper/bwd_key_rows.cuh"

// ---- a warpgroup of its own computes dQ (kDqWarpgroup) --------------------------------------------------------------
//
// Two warpgroups have 64 keys each and compute dK and dV of them. They put dS^T into shared memory, and a third one
// computes dQ from it (bwd_dq_rows.cuh, bwd_dq_columns.cuh) and adds that to the sums in memory. So nothing of dQ is in
// the registers of the first two, and they never wait for additions. Timeline of tile j, one row per warpgroup
// (kDvLate: dV is started later, before S of tile j + 1):
//
//     keys:  start dP | P | start dV | wait for dP, dS | put dS^T | start S of tile j + 1, dK | wait for S |
//     keys:  the same, with the other 64 keys
//     dQ:                                                          wait for dS^T | dQ | add it |
//
// The first two never wait for each other. So one computes P or dS while the tensor cores work for the other. dK is
// still under way when the next tile begins. So the stage of Q is given back a tile later.
//
// dS^T has as many stages as Q and dO, each with mbarriers `full` and `empty`; every warp that has written or read the
// stage arrives there. If blocks add to dQ in order, the third warpgroup arrives at `dq_added` instead, after its
// additions. A thread of the producer waits for that, gives the stage back and counts the block (Loads::count_all).

// Computes dK and dV of 64 keys over `steps` tiles of queries beginning at `at`.
__device__ __forceinline__ void compute_rows(const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                             Cursor at, int steps, const Barriers &barriers, int group, Sums &dk,
                                             Sums &dv)
{
    const uint32 smem = barriers.smem;
    const auto [k_rows, v_rows, warp, lane, place] = OwnKeys(smem, group);
    const int first_head = coord.kv_head * p.group;
    const uint32 lane_rows = smem + kLseArea + lane % 4 * 2 * 4;
    Stage stage;
    Scores s, dp;
    RowValues rows;
    Fragments p_frag, ds_frag;
    Dropout dropout(p, coord.first_key + warp * 16, lane);
    bool first = true;

    await_keys(p, coord, barriers);
    const KeyOperand<kHoldsKeys> k(k_rows, warp, lane), v(v_rows, warp, lane);
    await_tile(p, barriers, stage, at);
    load_row_values(rows, lane_rows);
    k.start_scores(s, smem + kQArea);
    wgmma_wait<0>();
#pragma unroll 1
    for (; steps > 0; steps--) {
        const uint32 q_smem = smem + kQArea + stage.index * kQTileBytes;
        const uint32 do_smem = smem + kDoArea + stage.index * kQTileBytes;
        const uint32 row_smem = lane_rows + stage.index * kRowBytes;
        Stage next = stage;

        pin(s);
        v.start_scores(dp, do_smem);
        begin_dropout(dropout, p, coord, first_head + at.head, at, lane);
        make_scores(s, dp, rows, p_frag, ds_frag, dv, dropout, p, coord, tiles, at, warp, lane, row_smem, do_smem);
        if (!first)
            barrier_arrive_by(lane, barriers.q(stage.before().index).empty);
        first = false;
        at.advance(tiles, tiles.end(p));
        if (steps > 1) {  // else S is computed again, and not used
            next.advance();
            await_tile(p, barriers, next, at);
            load_row_values(rows, lane_rows + next.index * kRowBytes);
        }
        if constexpr (kDqTransposed) {  // the stores of dS^T run beside S and dV: 3 % faster (results/tried.md)
            k.start_scores(s, smem + kQArea + next.index * kQTileBytes);
            start_sums(dv, p_frag, do_smem);
        }
        if (p.dq != nullptr)
            put_ds(ds_frag, barriers, stage, place, lane);
        if constexpr (!kDqTransposed) {
            if constexpr (kDvLate)
                start_sums(dv, p_frag, do_smem);
            k.start_scores(s, smem + kQArea + next.index * kQTileBytes);
        }
        start_sums(dk, ds_frag, q_smem);
        wgmma_wait<1>();  // S^T of the next tile is there, and dV
        barrier_arrive_by(lane, barriers.d_o(stage.index).empty);
        stage.advance();
    }
    wgmma_wait<0>();
    pin(dv);
    pin(dk);
}

// Adds dS K of the block's keys to dQ, over `steps` tiles of queries beginning at `at`. DqOperand and DqSums are the
// policy: dQ by rows, or transposed.
__device__ __forceinline__ void compute_dq_alone(const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                                 Cursor at, int steps, const Barriers &barriers)
{
    const uint32 smem = barriers.smem;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const DqSums sums(p, coord, warp, lane);
    Stage stage;

    barrier_wait(barriers.k_full(), 0);
    if constexpr (kDqTransposed && kVarlen)
        barrier_wait(barriers.ds(0).full, 0);  // rows of K after the sequence's end are cleared before it
    const DqOperand k(smem + kKArea, warp, lane);
#pragma unroll 1
    for (; steps > 0; steps--) {
        const int64 batch_head = int64(coord.batch) * p.heads_q + coord.kv_head * p.group + at.head;
        const uint32 *counter = nullptr;
        uint32 seen = 0, before = 0;
        if constexpr (kDqInOrder) {  // the counter is read while dS^T and dQ are computed
            counter = turn_counter(p, coord, batch_head, at.tile);
            before = blocks_before(p, coord, at.tile);
            seen = lane == 0 ? load_counter(counter) : 0;
        }
        barrier_wait(barriers.ds(stage.index).full, stage.parity);
#pragma unroll
        for (int part = 0; part < kDqProducts; part++) {
            DqTile dq;
            k.start_dq(dq, smem + kScoreArea + stage.index * kScoreBytes, part);
            wgmma_wait<0>();
            pin(dq);
            if (!kDqInOrder && part == kDqProducts - 1)
                hand_over(barriers.ds(stage.index).empty, lane);
            if (kDqInOrder && part == 0)
                await_turn(counter, seen, before, lane);
            sums.add(p, batch_head, at, dq, part);
        }
        if constexpr (kDqInOrder)
            hand_over(barriers.dq_added(stage.index), lane);
        at.advance(tiles, tiles.end(p));
        stage.advance();
    }
}
