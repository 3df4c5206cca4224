#pragma once
#include "hopper/bwd_key_rows.cuh"
#include "hopper/bwd_no_dq_group.cuh"

// ---- dQ of the tile before, added by the copy engine (kDqBulk) ------------------------------------------------------
//
// As in bwd_by_keys.cuh, each warpgroup has 64 keys and computes a part of dQ from all keys of the block. But dQ of a
// tile is computed during the next tile. Timeline of tile j:
//
//     start S, dP | wait for S, P | start dV | wait for dP, dS | put dS^T |
//     wait for dS^T of tile j - 1 | start dQ of tile j - 1, and half of dK | wait for dQ, put it into shared memory |
//     start the other half of dK | let the copy engine add dQ | wait for dK
//
// With kDvLate, dV is started after dS^T was put. This leaves registers to start S of tile j + 1 together with dK, so S
// is ready when tile j + 1 begins (kSAhead).
//
// Why a tile later: dS^T of tile j - 1 is complete by then, so warpgroups hardly wait for each other. One computes P or
// dS while the tensor cores work for the other. dS^T has as many stages as Q and dO, each with mbarriers `full` and
// `empty`; every warp that has written or read a stage arrives there.
//
// Why the copy engine: a wgmma starts only when earlier instructions have read their registers. So additions from
// registers would delay the products of the next tile. Stores to shared memory wait for the wgmma that their warp has
// issued before. So only half of dK is started before dQ is put there.

// If blocks add in order, a thread of the producer waits for the block's turn, lets the copy engine add the whole tile,
// and counts it (Loads::add_all).

constexpr bool kSAhead = kDvLate;
static_assert(kStages == 2, "the number of a tile's stage is the parity of the tile's number");

// A warp's part of dQ of a tile: 16 rows, and some columns.
struct DqPart {
    float *sum;    // its sums in memory
    int rows;      // with packed sequences, rows from its first to the sequence's end
    int columns;   // number of the part in a row
    uint32 place;  // of the lane, in shared memory

    // Packed sequences: a part that the sequence's end cuts is laid out in another way, and the warp adds it.
    __device__ __forceinline__ bool is_cut() const
    {
        return kVarlen && rows < 16;
    }

    // Returns the number of a warp's part in a tile of the sums.
    static __device__ __forceinline__ int number(int group, int warp)
    {
        return (group / kColWarps * 4 + warp % 4) * kColWarps + group % kColWarps;
    }

    __device__ __forceinline__ void find(const Params &p, const BlockCoord &coord, const Cursor &at, int group,
                                         int warp)
    {
        const int64 batch_head = int64(coord.batch) * p.heads_q + coord.kv_head * p.group + at.head;
        const int m = group / kColWarps * 4 + warp % 4;
        columns = group % kColWarps;
        rows = p.seq_q - at.tile * kBr - m * 16;
        if constexpr (kVarlen)
            sum = dq_sums(p, coord, batch_head, at.tile, m, columns);
        else
            sum = p.dq_sum + (batch_head * p.q_tiles + at.tile) * kDqTile + number(group, warp) * kDqWarpPart;
    }

    // Puts the part into shared memory. parity: of the tile's number in the block.
    __device__ __forceinline__ void put(const Params &p, const Barriers &barriers, uint32 parity, const DqTile &dq,
                                        int lane) const
    {
        if (p.dq == nullptr)
            return;
        if (is_cut()) {
            add_dq(sum, dq, lane, rows, columns);
            return;
        }
        if constexpr (kAddsApart) {
            barrier_wait(barriers.exchange().empty, parity ^ 1);
        } else {
            if (lane == 0)
                wait_stores_read();  // the part before is read
            __syncwarp();
        }
#pragma unroll
        for (int n = 0; n < 2 * kDqPairs; n++)
            store_shared_floats(place + n * kDqFragment * 4, dq[0][n]);
    }

    // Lets the copy engine add it, or the thread that does so for all warps.
    __device__ __forceinline__ void add(const Params &p, const Barriers &barriers, int lane) const
    {
        if (p.dq == nullptr || is_cut())
            return;
        fence_products();
        __syncwarp();  // the part is there
        if constexpr (kAddsApart) {
            barrier_arrive_by(lane, barriers.exchange().full);
        } else if (lane == 0) {
            add_bytes(sum, place, kDqPartBytes);
            commit_stores();
        }
    }
};

// Starts dQ = dS K of a warpgroup's part. score_smem: dS^T.
__device__ __forceinline__ void start_dq_part(DqTile &dq, uint32 smem, uint32 score_smem, int group)
{
    start_dq(dq, score_smem + group / kColWarps * kKvPageBytes, smem + kKArea + group % kColWarps * kDqColumnBytes);
}

// Starts S^T and dP^T of a tile. S^T may have been started a tile ahead.
__device__ __forceinline__ void start_tile(Scores &s, Scores &dp, RowValues &lse, const Params &p,
                                           const Barriers &barriers, const Stage &stage, const Cursor &at,
                                           uint32 k_rows, uint32 v_rows, uint32 row_smem)
{
    if constexpr (!kSAhead)
        await_tile(p, barriers, stage, at);
    load_row_values(lse, row_smem);
    if constexpr (!kSAhead)
        start_scores(s, k_rows, barriers.smem + kQArea + stage.index * kQTileBytes);
    start_scores(dp, v_rows, barriers.smem + kDoArea + stage.index * kQTileBytes);
}

// Starts dQ of the tile before, at `previous`, and dK. Puts the warp's part of dQ into shared memory. At the first tile
// there is no dS^T yet: dQ is computed from K instead and not used, because a branch around it would take registers.
__device__ __forceinline__ void start_dq_and_dk(DqPart &part, Sums &dk, Sums &dv, const Fragments &ds_frag,
                                                const Params &p, const BlockCoord &coord, const Barriers &barriers,
                                                const Stage &stage, const Cursor &previous, bool first, int group,
                                                int warp, int lane)
{
    const uint32 smem = barriers.smem, q_smem = smem + kQArea + stage.index * kQTileBytes;
    const Stage before = stage.before();
    DqTile dq;
    if (!first)
        barrier_wait(barriers.ds(before.index).full, before.parity);
    start_dq_part(dq, smem, smem + (first ? kKArea : kScoreArea + before.index * kScoreBytes), group);
    start_sums<0, kQuerySteps / 2>(dk, ds_frag, q_smem);
    wgmma_wait<1>();  // dV and dQ are there
    pin(dv);
    pin(dq);
    barrier_arrive_by(lane, barriers.d_o(stage.index).empty);
    if (!first) {
        hand_over(barriers.ds(before.index).empty, lane);
        part.find(p, coord, previous, group, warp);
        part.put(p, barriers, before.index, dq, lane);
    }
    start_sums<kQuerySteps / 2, kQuerySteps>(dk, ds_frag, q_smem);
}

// Computes dK and dV of 64 keys, and adds to dQ, over `steps` tiles of queries beginning at `at`.
__device__ __forceinline__ void compute_rows(const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                             Cursor at, int steps, const Barriers &barriers, int group, Sums &dk,
                                             Sums &dv)
{
    const uint32 smem = barriers.smem;
    const auto [k_rows, v_rows, warp, lane, place] = OwnKeys(smem, group);
    const int first_head = coord.kv_head * p.group;
    const int dq_part = kAddsApart ? DqPart::number(group, warp) : warp;
    int dq_place = smem + kDqArea + dq_part * kDqPartBytes + threadIdx.x % 32 * 16;
    keep(dq_place);
    Stage stage;
    Cursor previous = at;
    Scores s, dp;
    RowValues rows;
    Fragments p_frag, ds_frag;
    DqPart part;
    part.place = dq_place;
    Dropout dropout(p, coord.first_key + warp * 16, lane);
    bool first = true;

    await_keys(p, coord, barriers);
    if constexpr (kSAhead) {
        await_tile(p, barriers, stage, at);
        start_scores(s, k_rows, smem + kQArea);
        wgmma_wait<0>();
    }
#pragma unroll 1
    for (; steps > 0; steps--) {
        const uint32 do_smem = smem + kDoArea + stage.index * kQTileBytes;
        const uint32 row_smem = smem + kLseArea + stage.index * kRowBytes + lane % 4 * 2 * 4;
        start_tile(s, dp, rows, p, barriers, stage, at, k_rows, v_rows, row_smem);
        begin_dropout(dropout, p, coord, first_head + at.head, at, lane);
        if constexpr (!kSAhead)
            wgmma_wait<1>();  // S^T is there
        pin(s);
        make_scores(s, dp, rows, p_frag, ds_frag, dv, dropout, p, coord, tiles, at, warp, lane, row_smem, do_smem);
        put_ds(ds_frag, barriers, stage, place, lane);
        if constexpr (kDvLate)
            start_sums(dv, p_frag, do_smem);
        start_dq_and_dk(part, dk, dv, ds_frag, p, coord, barriers, stage, previous, first, group, warp, lane);
        previous = at;
        at.advance(tiles, tiles.end(p));
        Stage next = stage;
        if (steps > 1)
            next.advance();
        if constexpr (kSAhead) {  // after the last tile: S of that tile again, which is not used
            if (steps > 1)
                await_tile(p, barriers, next, at);
            start_scores(s, k_rows, smem + kQArea + next.index * kQTileBytes);
        }
        if (!first)
            part.add(p, barriers, lane);
        wgmma_wait<0>();  // dK is there, and S^T of the next tile
        pin(dk);
        barrier_arrive_by(lane, barriers.q(stage.index).empty);
        first = false;
        stage = next;
    }
    DqTile dq;
    barrier_wait(barriers.ds(stage.index).full, stage.parity);
    start_dq_part(dq, smem, smem + kScoreArea + stage.index * kScoreBytes, group);
    wgmma_wait<0>();
    pin(dq);
    part.find(p, coord, previous, group, warp);
    part.put(p, barriers, stage.index, dq, lane);
    part.add(p, barriers, lane);
    wait_stores_read();  // the last part is read
}
