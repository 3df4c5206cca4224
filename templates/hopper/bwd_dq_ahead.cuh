#pragma once
#include "hopper/bwd_key_rows.cuh"
#include "hopper/bwd_no_dq_group.cuh"

// ---- dQ of the tile before, added by the copy engine (kDqBulk) ------------------------------------------------------
//
// As in bwd_by_keys.cuh, each warpgroup has 64 keys and a part of dQ. Timeline of tile j:
//
//     start S, dP | wait for S, P | start dV | wait for dP, dS | put dS^T | wait for dS^T of tile j - 1 | start dQ of
//     tile j - 1, and half of dK | wait for dQ, put it | start the other half of dK | let dQ be added | wait for dK
//
// dS^T of tile j - 1 has long been there, so a warpgroup need not wait for the other one. They drift apart, and one
// computes P or dS while the tensor cores work for the other. dS^T has two stages, with mbarriers `full` and `empty`;
// every warp that has written or read a stage arrives there.
//
// Warps put their parts of dQ into shared memory, and the copy engine adds these to the sums in memory. A wgmma must not
// start before all earlier reads of registers are done, so additions from registers hold up the products of the next
// tile. Accesses to shared memory wait behind all wgmma that the warp has issued. So half of dK is started behind them.
//
// A warp's part of dQ of a tile: 16 rows, and some columns.
struct DqPart {
    float *sum;  // its sums in memory
    int rows;    // with packed sequences, rows from its first to the sequence's end
    int columns; // number of the part in a row
    uint32 place; // of the lane, in shared memory

    // Packed sequences: a part that the sequence's end cuts is laid out in another way, and the warp adds it.
    __device__ __forceinline__ bool is_cut() const
    {
        return kVarlen && rows < 16;
    }

    __device__ __forceinline__ void find(const Params &p, const BlockCoord &coord, const Cursor &at, int group, int warp)
    {
        const int64 batch_head = int64(coord.batch) * p.heads_q + coord.kv_head * p.group + at.head;
        const int m = group / kColWarps * 4 + warp % 4;
        columns = group % kColWarps;
        rows = p.seq_q - at.tile * kBr - m * 16;
        if constexpr (kVarlen)
            sum = dq_sums(p, coord, batch_head, at.tile, m, columns);
        else
            sum = p.dq_sum + (batch_head * p.q_tiles + at.tile) * kDqTile + (m * kColWarps + columns) * kDqWarpPart;
    }

    // Puts the part into shared memory.
    __device__ __forceinline__ void put(const DqTile &dq, int lane) const
    {
        if (is_cut()) {
            add_dq(sum, dq, lane, rows, columns);
            return;
        }
        if (lane == 0)
            wait_stores();  // the part before is read
        __syncwarp();
#pragma unroll
        for (int n = 0; n < 2 * kDqPairs; n++)
            store_shared_floats(place + n * kDqFragment * 4, dq[0][n]);
    }

    // Lets the copy engine add it.
    __device__ __forceinline__ void add(int lane) const
    {
        if (is_cut())
            return;
        fence_products();
        __syncwarp();  // the part is there
        if (lane == 0) {
            add_bytes(sum, place, kDqPartBytes);
            commit_stores();
        }
    }
};

// Waits for a tile of Q and dO, and starts S^T = K Q^T.
__device__ __forceinline__ void start_s(Scores &s, const Params &p, const Barriers &barriers,
                                        const Stage &stage, const Cursor &at, uint32 k_rows)
{
    const uint32 smem = barriers.smem, q_smem = smem + kQArea + stage.index * kQTileBytes;
    barrier_wait(barriers.q_full(stage.index), stage.parity);
    barrier_wait(barriers.do_full(stage.index), stage.parity);
    if constexpr (kVarlen)
        clear_after_end(p, barriers, stage, at, q_smem, smem + kDoArea + stage.index * kQTileBytes);
    start_scores(s, k_rows, q_smem);
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
    const uint32 row_offset = group / kColWarps * kKvPageBytes;
    const uint32 k_columns = smem + kKArea + group % kColWarps * kDqColumnBytes;
    StageOf<kScoreStages> score_stage;
    Cursor last;
    Scores s, dp;
    RowValues rows;
    Fragments p_frag, ds_frag;
    Dropout dropout(p, coord.first_key + warp * 16, lane);
    bool first = true;

    barrier_wait(barriers.k_full(), 0);
    barrier_wait(barriers.v_full(), 0);
    if constexpr (kVarlen)
        clear_rows<kBc>(smem + kKArea, smem + kVArea, p.seq_k - coord.first_key);
    start_s(s, p, barriers, stage, at, k_rows);
    wgmma_wait<0>();
#pragma unroll 1
    for (; visits > 0; visits--) {
        const uint32 q_smem = smem + kQArea + stage.index * kQTileBytes;
        const uint32 do_smem = smem + kDoArea + stage.index * kQTileBytes;
        const uint32 row_smem = smem + kLseArea + stage.index * kRowBytes + lane % 4 * 2 * 4;
        DqTile dq;

        pin(s);
        load_row_values(rows, row_smem);
        start_scores(dp, v_rows, do_smem);
        if constexpr (kDropout)  // beside these products; ptxas moves code that is not in a branch after the wait
            if (p.features.drop_bound != 0)  // always true
                dropout.begin(p, coord.sequence() * p.heads_q + first_head + at.head, at.tile * kBr, lane);
        Scores capped;
        make_p_fragments(s, capped, rows, p_frag, dropout, p, coord, tiles, at, warp, lane, row_smem);
        if constexpr (!kDvLate)
            start_sums(dv, p_frag, do_smem);
        wgmma_wait<kDvLate ? 0 : 1>();  // dP^T is there
        make_ds_fragments(s, dp, capped, rows, ds_frag, dropout);
        barrier_wait(barriers.ds_empty(score_stage.index), score_stage.parity ^ 1);
        store_ds_at(ds_frag, smem + kScoreArea + score_stage.index * kScoreBytes + place);
        fence_products();
        hand_over(barriers.ds_full(score_stage.index), lane);
        const StageOf<kScoreStages> before = score_stage.before();
        if constexpr (kDvLate)
            start_sums(dv, p_frag, do_smem);
        if (!first)
            barrier_wait(barriers.ds_full(before.index), before.parity);
        // dQ of the first tile's predecessor is computed from K, and not used: a branch around it takes registers.
        start_dq(dq, smem + (first ? kKArea : kScoreArea + before.index * kScoreBytes) + row_offset, k_columns);
        start_sums<0, kQuerySteps / 2>(dk, ds_frag, q_smem);
        wgmma_wait<1>();  // dV and dQ are there
        pin(dv);
        barrier_arrive_by(lane, barriers.do_empty(stage.index));
        DqPart part;
        part.place = dq_place;
        pin(dq);
        if (!first) {
            hand_over(barriers.ds_empty(before.index), lane);
            part.find(p, coord, last, group, warp);
            if (p.dq != nullptr)
                part.put(dq, lane);
        }
        start_sums<kQuerySteps / 2, kQuerySteps>(dk, ds_frag, q_smem);
        Stage next = stage;
        last = at;
        at.advance(tiles, tiles.end(p));
        if (visits > 1)
            next.advance();
        start_s(s, p, barriers, next, at, k_rows);
        if (p.dq != nullptr && !first)
            part.add(lane);
        wgmma_wait<0>();  // dK and S^T of the next tile are there
        pin(dk);
        barrier_arrive_by(lane, barriers.q_empty(stage.index));
        first = false;
        stage.advance();
        score_stage.advance();
    }
    const StageOf<kScoreStages> before = score_stage.before();
    DqTile dq;
    barrier_wait(barriers.ds_full(before.index), before.parity);
    start_dq(dq, smem + kScoreArea + before.index * kScoreBytes + row_offset, k_columns);
    wgmma_wait<0>();
    pin(dk);
    pin(dq);
    if (p.dq != nullptr) {
        DqPart part;
        part.place = dq_place;
        part.find(p, coord, last, group, warp);
        part.put(dq, lane);
        part.add(lane);
        wait_stores();  // the last part is read
    }
}

// Kernels that divide the products have this function (bwd_by_product.cuh).
__device__ __forceinline__ void compute_by_product(const Params &, const BlockCoord &, const TileRange &,
                                                   const Cursor &, int, const Barriers &, int, int)
{
}
