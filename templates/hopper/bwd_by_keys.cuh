#pragma once
#include "hopper/bwd_key_rows.cuh"
#include "hopper/bwd_no_dq_group.cuh"

// ---- consumer: a warpgroup that computes dK and dV of 64 keys, and its part of dQ -----------------------------------
//
// compute_rows is the loop over tiles of queries (bwd.cuh has its timeline). dS^T has two stages, which take turns, so
// one barrier for each tile is enough: warps write dS^T of a tile while others still read that of the tile before.

// Turns S^T into P^T and starts dV; then turns dP^T into dS^T, for dK and dQ.
__device__ __forceinline__ void make_scores(Scores &s, Scores &dp, Fragments &p_frag, Fragments &ds_frag, Sums &dv,
                                            const Dropout &dropout, const Params &p, const BlockCoord &coord,
                                            const TileRange &tiles, const Cursor &at, int warp, int lane,
                                            uint32 row_smem, uint32 do_smem)
{
    wgmma_wait<1>();  // S^T is there
    pin(s);
    Scores capped;
    make_p(s, capped, p, coord, tiles, at, warp * 16, row_smem, lane);
    pack_scores(p_frag, s);
    dropout.mask(p_frag);
    start_sums(dv, p_frag, do_smem);
    wgmma_wait<1>();  // dP^T is there
    pin(dp);
    if constexpr (kModified)
        multiply_derivatives(s, capped);
    dropout.mask(dp);
    dp_to_ds(dp, s, row_smem + kDeltaArea - kLseArea);
    pack_scores(ds_frag, dp);
}

// Waits for Q and dO, and starts S^T = K Q^T and dP^T = V dO^T.
__device__ __forceinline__ void start_products(Scores &s, Scores &dp, const Params &p, const Barriers &barriers,
                                               const Stage &stage, const Cursor &at, uint32 k_rows, uint32 v_rows,
                                               uint32 q_smem, uint32 do_smem)
{
    barrier_wait(barriers.q(stage.index).full, stage.parity);
    if constexpr (kVarlen)
        clear_after_end(p, barriers, stage, at, q_smem, do_smem);
    start_scores(s, k_rows, q_smem);
    barrier_wait(barriers.d_o(stage.index).full, stage.parity);
    start_scores(dp, v_rows, do_smem);
}

// Adds a warp's part of dQ of the tile `at` to the sums over all blocks. seen: with kDqInOrder, the counter of the tile
// as lane 0 has read it earlier. The producer counts the tile when all warps have given its Q back (bwd_producer.cuh).
__device__ __forceinline__ void add_dq_of(const Params &p, const BlockCoord &coord, const Cursor &at, int64 batch_head,
                                          const DqTile &dq, uint32 seen, int row_group, int col_group, int warp,
                                          int lane)
{
    float *tile_sum = kVarlen ? nullptr : p.dq_sum + (batch_head * p.q_tiles + at.tile) * kDqTile;
    if constexpr (kDqInOrder)
        await_turn(turn_counter(p, coord, batch_head, at.tile), seen, blocks_before(p, coord, at.tile), lane);
    const int m = row_group * 4 + warp % 4;
    if constexpr (kVarlen)
        add_dq(dq_sums(p, coord, batch_head, at.tile, m, col_group), dq, lane, p.seq_q - at.tile * kBr - m * 16,
               col_group);
    else
        add_dq(tile_sum + (m * kColWarps + col_group) * kDqWarpPart, dq, lane);
}

// Computes dK and dV of 64 keys, and adds to dQ, over `steps` tiles of queries beginning at `at`.
__device__ __forceinline__ void compute_rows(const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                             Cursor at, int steps, const Barriers &barriers, int group, Sums &dk,
                                             Sums &dv)
{
    const uint32 smem = barriers.smem;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32 k_rows = smem + kKArea + group * kGroupKeys * kPageRowBytes, v_rows = k_rows + kVArea - kKArea;
    const int row_group = group / kColWarps, col_group = group % kColWarps;
    const int first_head = coord.kv_head * p.group;
    Stage stage;
    uint32 score_stage = 0;
    Scores s, dp;
    Dropout dropout(p, coord.first_key + warp * 16, lane);

    await_keys(p, coord, barriers);
#pragma unroll 1
    for (; steps > 0; steps--) {
        const uint32 q_smem = smem + kQArea + stage.index * kQTileBytes;
        const uint32 do_smem = smem + kDoArea + stage.index * kQTileBytes;
        const uint32 row_smem = smem + kLseArea + stage.index * kRowBytes + lane % 4 * 2 * 4;
        const uint32 score_smem = smem + kScoreArea + score_stage * kScoreBytes;
        Fragments p_frag, ds_frag;
        DqTile dq;

        start_products(s, dp, p, barriers, stage, at, k_rows, v_rows, q_smem, do_smem);
        const int64 batch_head = int64(coord.batch) * p.heads_q + first_head + at.head;
        uint32 seen = 0;
        if (kDqInOrder && p.dq != nullptr && lane == 0)
            seen = load_counter(turn_counter(p, coord, batch_head, at.tile));
        begin_dropout(dropout, p, coord, first_head + at.head, at, lane);
        make_scores(s, dp, p_frag, ds_frag, dv, dropout, p, coord, tiles, at, warp, lane, row_smem, do_smem);
        store_ds(ds_frag, score_smem, warp * 16, lane);
        fence_products();
        named_barrier(1, kWorkers);  // all of dS^T is there; dS^T of the tile before is read
        start_dq(dq, score_smem + row_group * kKvPageBytes, smem + kKArea + col_group * kDqColumnBytes);
        start_sums(dk, ds_frag, q_smem);
        wgmma_wait<1>();  // dV and dQ are there
        pin(dv);
        pin(dq);
        if (lane == 0)
            barrier_arrive(barriers.d_o(stage.index).empty);
        if (p.dq != nullptr)
            add_dq_of(p, coord, at, batch_head, dq, seen, row_group, col_group, warp, lane);
        wgmma_wait<0>();
        pin(dk);
        if constexpr (kDqInOrder)
            __syncwarp();  // all lanes have added to dQ
        if (lane == 0)
            barrier_arrive(barriers.q(stage.index).empty);
        at.advance(tiles, tiles.end(p));
        stage.advance();
        score_stage ^= 1;
    }
}
