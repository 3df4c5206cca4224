#pragma once
#include "forward/step.cuh"
#include "lib/early.cuh"

// ---- forward ----------------------------------------------------------------------------------------
//
// The kernel of fwd_sm75, fwd_sm80 and fwd_bytes_sm89, and of the families that split keys (entry.cu.in calls
// `forward`). One block computes kBr rows of O. The mainloop goes through the tiles of K and V from the last to the
// first; `mainloop_step` of step.cuh is one step. So the tiles that need a mask (the tensor's end, the causal diagonal)
// come first, and the loop over the others has no compare code. With a window, there are tiles to mask at both ends.
//
// Each feature changes one place. Features that a kernel lacks are compiled out.
//
//     which tiles are processed           tiles.cuh, full.cuh, window.cuh
//     which keys a row sees               full.cuh, window.cuh
//     where a row of K or V lies          keys.cuh, pages.cuh
//     whether Q, K are rounded to int8    exact_scores.cuh, int8_scores.cuh
//     whether P, V are rounded to e4m3    product_pv.cuh, product_pv_fp8.cuh; fp8_p.cuh
//     K and V in 8 bits                   kv8_scores.cuh, kv8_values.cuh
//     what is added to scores             terms.cuh
//     what dropout leaves of P            dropout.cuh; only product_pv reads it
//     how a row begins and ends           softmax.cuh, row_ends.cuh
//
// Timeline of the step of tile t, with the copies that run meanwhile. K and V of a tile are one stage (kJoint, two or
// three stages):
//
//   wait K, V (t) | S = Q K^T    softmax   O += P V
//                            | copy K, V (t - 1, or t - 2 with three stages) ........
//
// The copies are issued with the last part of S, or divided among its parts (kSpreadFill).
//
// or K and V have separate stages, with two barriers per step (one or two stages of K):
//
//   wait K (t) | S = Q K^T        | wait V (t) | softmax   O += P V
//              | copy V (t) ..... |            | copy K (t - 1), into its one stage
//              | copy K (t - 1), with two stages of K .............
//
// Barriers per tile: one if kJoint, else two. The comment at each barrier says what it orders. A team of warps
// processes every kTeams-th tile and waits only for its own members.

// Reads this warp's rows of Q into registers.
__device__ __forceinline__ void read_q(QueryFragments &q_frag, const WarpRows &own)
{
    __syncthreads();  // Q is complete before it is read
    each_of<kRowTiles, kDepth>([&](int m, int step) {
        ldmatrix_x4(q_frag[m][step], own.q_smem + pair_offset(own.rows, step * kParts) + m * 16 * kPitch);
    });
    if constexpr (kJoint || kTeams > 1)
        __syncthreads();  // Q is read before V is loaded into its area
}

// Loads Q, and the first tiles of K and V.
__device__ __forceinline__ void prologue(QueryFragments &q_frag, QueryFill &q_fill, KeyFills &fills, Pages &pages,
                                         const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                         const KeyStream &to, const WarpRows &own, uint32 q_area, const int &tile)
{
    // Only the first tile that is processed can reach beyond the tensor's end.
    q_fill.template issue<false>(FillPlan<kBr, kThreads>(), kWhole, q_area, coord.rows - coord.first_row, [&](int r) {
        return p.q + coord.offset(p, p.q_stride, coord.first_row + r) * kElemBytes;
    });
    if (kTeams == 1 || tile >= tiles.first)
        issue_k<false>(fills, pages, p, coord, to, KeyPlan(), kWhole, tile);
    fill_commit();
    q_fill.store(q_area);
    if constexpr (kQInRegisters && !kQBehind) {
        fill_wait<0>();
        read_q(q_frag, own);
    }
    if constexpr (kJoint) {
        if (kTeams == 1 || tile >= tiles.first)
            issue_v<false>(fills, pages, p, coord, to, KeyPlan(), kWhole, tile);
        fill_commit();
#pragma unroll
        for (int ahead = 1; ahead < kKStages - 1; ahead++) {
            pages.pass();  // to this tile
            if (kScalesAhead > 0 && (kTeams == 1 || tile >= tiles.first))
                store_scales(fills, to, tile - (ahead - 1) * kTeams);
            if (tile - ahead * kTeams >= tiles.first) {
                issue_k<true>(fills, pages, p, coord, to, KeyPlan(), kWhole, tile - ahead * kTeams);
                issue_v<true>(fills, pages, p, coord, to, KeyPlan(), kWhole, tile - ahead * kTeams);
            }
            fill_commit();
        }
    }
    if constexpr (kQBehind) {  // Q came through the area of V (tile.cuh)
        fill_wait<kKStages - 1>();
        read_q(q_frag, own);
    }
    if constexpr (kTeams > 1 && !kQInRegisters) {
        fill_wait<kJoint ? kKStages - 1 : 0>();
        __syncthreads();  // Q is complete: all threads loaded it, but a team's barrier covers the team only
    }
}

// The kernel; kThreads threads.
__device__ __forceinline__ void forward(const Params &p)
{
    extern __shared__ __align__(128) char shared[];
    if constexpr (kSplit)
        let_next_step_begin();
    if constexpr (kInt8Scores)
        await_step_before();  // K, and V if it is rounded, are written before they are read
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const int lane = threadIdx.x % 32;
    const int team = kTeams > 1 ? threadIdx.x / kTeamThreads : 0;
    const int team_warp = threadIdx.x / 32 - team * (kTeamThreads / 32);
    const int warp_row = team_warp / kParts * (16 * kRowTiles);  // this warp's first row in the block
    const BlockCoord coord(p, WorkOfGrid());
    if constexpr (kVarlen)
        clear_unused_rows(p);
    if constexpr (kVarlen || (kSplit && kLengths))
        if (coord.batch < 0)
            return;
    const TileRange tiles(p, coord);

    const uint32 lane_rows = pair_offset(RowTile::lane_offset_rows(lane), own_part());
    const uint32 lane_cols = KeyTile::pair_offset(KeyTile::lane_offset_cols(lane), own_part());
    const uint32 lane_of_values = kFp8Values ? ValueTile::lane_offset_cols(lane) : ValueTile::lane_offset_rows(lane);
    const uint32 lane_values = ValueTile::pair_offset(lane_of_values, own_part());
    const uint32 q_area = kQBehind ? v_stage(smem, 0, tiles.count - 1 + kTeams) : smem + kQArea;
    const WarpRows own{q_area + warp_row * kPitch, lane_rows, lane_cols, lane_values, coord.first_row + warp_row, lane};

    OutputTile o = {};
    RowState row;
    begin_rows(row, p);

    QueryFragments q_frag;
    if (tiles.count > tiles.first) {
        QueryFill q_fill;
        KeyFills fills;
        const int kv_head = coord.kv_head(p);
        const char *k_head = loaded_keys(p, coord, kv_head);
        const char *v_head = loaded_values(p, coord, kv_head);
        const KeyStream to{ScaleHeads(p, coord, kv_head), k_head, v_head, smem, team};
        int tile = tiles.count - 1 - team;
        Pages pages(p, coord);
        pages.find_first(tile);
        Dropout dropped(p, coord, coord.first_row + warp_row, lane);
        const Terms terms(p, coord, coord.first_row + warp_row, lane);
        prologue(q_frag, q_fill, fills, pages, p, coord, tiles, to, own, q_area, tile);
        const uint32 means = smem + kMeanArea + warp_row * 4;
        const auto &queries = make_queries<kScaledInSoftmax>(q_frag, p, coord, means, lane);
        auto step = [&](auto masked) {
            mainloop_step<decltype(masked)::value>(o, row, queries, dropped, terms, fills, pages, p, coord, tiles, to,
                                                   own, tile);
        };
        if constexpr (kWindow != Window::kNone) {
            // A single loop over the remaining tiles: a third loop after the two would take registers, which spill
            // elsewhere.
#pragma unroll 1
            for (; tile >= tiles.first; tile -= kTeams)
                if (tile >= tiles.unmasked || tile < tiles.plain)
                    step(Bool<true>{});
                else
                    step(Bool<false>{});
        } else {
#pragma unroll 1
            for (; tile >= max(tiles.unmasked, tiles.first); tile -= kTeams)
                step(Bool<true>{});
#pragma unroll 1
            for (; tile >= tiles.first; tile -= kTeams)
                step(Bool<false>{});
        }
        end_scores<kScaledInSoftmax>(row, means, lane);
    }
    // Epilogue.
    finish_output(o, row, p.scale_log2);
    write_rows<OutputForm>(p, coord, o, row, smem, warp_row, lane);
}
