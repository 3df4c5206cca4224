#pragma once
#include "hopper/bwd_key_rows.cuh"
#include "hopper/bwd_no_dq_group.cuh"

// ---- the copy engine adds dQ to the sums (kDqBulk) ------------------------------------------------------------------
//
// As in bwd_by_keys.cuh, each warpgroup has 64 keys and a part of dQ. Warps do not add their parts to the sums in memory
// themselves. They put them into shared memory, and the copy engine adds them. A wgmma must not start before all
// earlier reads of registers are done, so additions from registers hold up the products of the next tile.
//
// Where registers suffice (kDkOverEnd), dK of a tile is still under way when the products of the next tile start. Then
// the stage of Q is given back when S of that tile is there.
constexpr bool kDkOverEnd = kHeadDimPadded <= 96;

// Puts a warp's part of dQ into shared memory. place: of the lane.
__device__ __forceinline__ void put_dq(const DqTile &dq, uint32 place, int lane)
{
    if (lane == 0)
        wait_stores();  // the part before is read
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 2 * kDqPairs; n++)
        store_shared_floats(place + n * kDqFragment * 4, dq[0][n]);
}

// Lets the copy engine add the warp's part of dQ of the tile `at`.
__device__ __forceinline__ void add_dq_of(const Params &p, const BlockCoord &coord, const Cursor &at, uint32 place,
                                          int group, int warp, int lane)
{
    const int row_group = group / kColWarps, col_group = group % kColWarps, m = row_group * 4 + warp % 4;
    const int64 batch_head = int64(coord.batch) * p.heads_q + coord.kv_head * p.group + at.head;
    float *sum = p.dq_sum + (batch_head * p.q_tiles + at.tile) * kDqTile + (m * kColWarps + col_group) * kDqWarpPart;
    fence_products();
    __syncwarp();  // the part is there
    if (lane == 0) {
        add_bytes(sum, place, kDqPartBytes);
        commit_stores();
    }
}

// Computes dK and dV of 64 keys, and adds to dQ, over `visits` tiles of queries beginning at `at`.
__device__ __forceinline__ void compute_rows(const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                             Cursor at, int visits, const Barriers &barriers, int group, Sums &dk,
                                             Sums &dv)
{
    const uint32 smem = barriers.smem;
    int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    int place = ds_place(warp * 16, lane), dq_place = smem + kDqArea + warp * kDqPartBytes + lane * 16;
    keep(lane);
    keep(place);
    keep(dq_place);
    const uint32 k_rows = smem + kKArea + group * kGroupKeys * kPageRowBytes, v_rows = k_rows + kVArea - kKArea;
    const int first_head = coord.kv_head * p.group;
    Stage stage;
    uint32 score_stage = 0;
    Scores s, dp;
    RowValues rows;
    Fragments p_frag, ds_frag;
    Dropout dropout(p, coord.first_key + warp * 16, lane);
    bool first = true;

    barrier_wait(barriers.k_full(), 0);
    barrier_wait(barriers.v_full(), 0);
    if constexpr (kVarlen)
        clear_rows<kBc>(smem + kKArea, smem + kVArea, p.seq_k - coord.first_key);
#pragma unroll 1
    for (; visits > 0; visits--) {
        const uint32 q_smem = smem + kQArea + stage.index * kQTileBytes;
        const uint32 do_smem = smem + kDoArea + stage.index * kQTileBytes;
        const uint32 row_smem = smem + kLseArea + stage.index * kRowBytes + lane % 4 * 2 * 4;
        const uint32 score_smem = smem + kScoreArea + score_stage * kScoreBytes;
        DqTile dq;

        start_products(s, dp, rows, p, barriers, stage, at, k_rows, v_rows, q_smem, do_smem, row_smem);
        if constexpr (kDropout)  // beside these products; ptxas moves code that is not in a branch after the wait
            if (p.features.drop_bound != 0)  // always true
                dropout.begin(p, coord.sequence() * p.heads_q + first_head + at.head, at.tile * kBr, lane);
        if constexpr (kDkOverEnd) {
            wgmma_wait<1>();  // S^T is there, and dK of the tile before
            if (!first)
                barrier_arrive_by(lane, barriers.q_empty(stage.before().index));
            first = false;
        }
        make_scores(s, dp, rows, p_frag, ds_frag, dv, dropout, p, coord, tiles, at, warp, lane, row_smem, do_smem);
        store_ds_at(ds_frag, score_smem + place);
        fence_products();
        named_barrier(1, kWorkers);  // all of dS^T is there; dS^T of the tile before is read
        start_dq(dq, score_smem + group / kColWarps * kKvPageBytes, smem + kKArea + group % kColWarps * kDqColumnBytes);
        start_sums<0, kQuerySteps / 2>(dk, ds_frag, q_smem);
        wgmma_wait<1>();  // dV and dQ are there
        pin(dv);
        pin(dq);
        barrier_arrive_by(lane, barriers.do_empty(stage.index));
        if (p.dq != nullptr)
            put_dq(dq, dq_place, lane);
        start_sums<kQuerySteps / 2, kQuerySteps>(dk, ds_frag, q_smem);
        if (p.dq != nullptr)
            add_dq_of(p, coord, at, dq_place, group, warp, lane);
        if constexpr (!kDkOverEnd) {
            wgmma_wait<0>();
            pin(dk);
            barrier_arrive_by(lane, barriers.q_empty(stage.index));
        }
        at.advance(tiles, tiles.end(p));
        stage.advance();
        score_stage ^= 1;
    }
    wgmma_wait<0>();
    pin(dk);
    wait_stores();  // the last part is read
}

// Kernels that divide the products have this function (bwd_by_product.cuh).
__device__ __forceinline__ void compute_by_product(const Params &, const BlockCoord &, const TileRange &,
                                                   const Cursor &, int, const Barriers &, int, int)
{
}
