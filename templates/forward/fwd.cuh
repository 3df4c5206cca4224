#pragma once
#include "features/softcap.cuh"
#include "forward/products.cuh"
#include "forward/softmax.cuh"
#include "forward/sum_scores.cuh"
#include "forward/tiles.cuh"
#include "lib/early.cuh"
#include "lib/fill.cuh"

// ---- forward ----------------------------------------------------------------------------------------
//
// The kernel of fwd_sm75 and fwd_sm80, and of the families that split keys (entry.cu.in calls `forward`). One block
// computes kBr rows of O. The mainloop (`visit` is one step) goes through the tiles of K and V from the last to the
// first. So the tiles that need a mask (the tensor's end, the causal diagonal) come first, and the loop over the others
// has no compare code. With a window, there are tiles to mask at both ends.
//
// Each feature changes one place. Features that a kernel lacks are compiled out.
//
//     which tiles are processed           tiles.cuh
//     which keys a row sees               mask.cuh
//     where a row of K or V lies          keys.cuh
//     what is added to scores             terms.cuh
//     what dropout leaves of P            dropout.cuh; only product_pv reads it
//     how a row begins and ends           softmax.cuh
//
// Timeline of the step of tile t, with the copies that run meanwhile. K and V of a tile are one stage (kJoint, two or
// three stages):
//
//   wait K, V (t) | S = Q K^T                            softmax   O += P V
//                 | copy K, V (t - 1, or t - 2 with three stages) ........
//
// or K and V have separate stages, with two barriers per step (one or two stages of K):
//
//   wait K (t) | S = Q K^T        | wait V (t) | softmax   O += P V
//              | copy V (t) ..... |            | copy K (t - 1), into its one stage
//              | copy K (t - 1), with two stages of K .............
//
// Barriers per tile: one if kJoint, else two. The comment at each barrier says what it orders. A team of warps
// processes every kTeams-th tile and waits only for its own members.

// A barrier for the threads of one team.
__device__ __forceinline__ void team_sync()
{
    if constexpr (kTeams == 1)
        __syncthreads();
    else if constexpr (kTeamThreads == 32)
        __syncwarp();
    else
        named_barrier(1 + threadIdx.x / kTeamThreads, kTeamThreads);
}

// The empty policy: V is loaded with K.
struct NoFill {
    template <bool kFull, class Plan, class Address>
    __device__ __forceinline__ void issue(const Plan &, Share, uint32, int, Address)
    {
    }

    __device__ __forceinline__ void store(uint32) const
    {
    }
};

// V has its own load plan if its rows and the rows of K differ.
constexpr bool kOwnValuePlan = kHeadDimV < kHeadDim || kParts > 1;

// The kernel; kThreads threads.
__device__ __forceinline__ void forward(const Params &p)
{
    extern __shared__ __align__(128) char shared[];
    if constexpr (kSplit)
        let_next_step_begin();
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const int lane = threadIdx.x % 32;
    const int team = kTeams > 1 ? threadIdx.x / kTeamThreads : 0;
    const int team_warp = threadIdx.x / 32 - team * (kTeamThreads / 32);
    const int warp_row = team_warp / kParts * (16 * kRowTiles);  // this warp's first row in the block
    const BlockPlace place(p, WorkOfGrid());
    if constexpr (kVarlen)
        clear_unused_rows(p);
    if constexpr (kVarlen || (kSplit && kLengths))
        if (place.batch < 0)
            return;
    const TileRange tiles(p, place);

    const uint32 lane_rows = pair_offset(RowTile::lane_offset_rows(lane), own_part());
    const uint32 lane_cols = pair_offset(RowTile::lane_offset_cols(lane), own_part());
    const uint32 lane_values = ValueTile::pair_offset(ValueTile::lane_offset_rows(lane), own_part());
    const uint32 q_area = kQBehind ? v_stage(smem, 0, tiles.count - 1 + kTeams) : smem + kQArea;
    const uint32 q_smem = q_area + warp_row * kPitch;

    float o[kRowTiles][kOutTiles][4] = {};
    RowState row;
    begin_rows(row, p);

    uint32 q_frag[kRowTiles][kDepth][4];
    if (tiles.count > tiles.first) {
        using Plan = FillPlan<kBc, kTeamThreads>;
        Fill<kBr, kThreads> q_fill;
        Fill<kBc, kTeamThreads> k_fill;
        Either<kVInK, NoFill, Fill<kBc, kTeamThreads, kHeadDimV>>::Type v_fill;
        const int kv_head = place.kv_head(p);
        const char *k_plane = key_plane(p.k, p.k_stride, place, kv_head);
        const char *v_plane = key_plane(p.v, p.v_stride, place, kv_head);
        int tile = tiles.count - 1 - team;
        PageNumbersOf<Plan> numbers(p, place);
        numbers.find_first(tile);

        // Starts copying a share of a tile of K, or of V. full: all rows of the tile are before the tensor's end.
        auto issue_k = [&](auto full, const Plan &plan, Share share, int tile) {
            const int last = place.seq_k(p) - 1 - tile * kBc;
            const auto rows = rows_of(numbers, plan, tile, p.features.k_steps);
            k_fill.template issue<kWide || decltype(full)::value>(
                plan, share, k_stage(smem, team, tile), kWide ? kBc : place.seq_k(p) - tile * kBc,
                [&](int r) { return rows.at(k_plane, p.k_stride, kWide ? wide_key(r, last) : r); });
        };
        auto issue_v_by = [&](auto full, const auto &plan, Share share, int tile) {
            const int last = place.seq_k(p) - 1 - tile * kBc;
            const auto rows = rows_of(numbers, plan, tile, p.features.v_steps);
            v_fill.template issue<kWide || decltype(full)::value>(
                plan, share, v_stage(smem, team, tile), kWide ? kBc : place.seq_k(p) - tile * kBc,
                [&](int r) { return rows.at(v_plane, p.v_stride, kWide ? wide_key(r, last) : r); });
        };
        auto issue_v = [&](auto full, const auto &plan, Share share, int tile) {
            if constexpr (kVInK)
                return;
            else if constexpr (kOwnValuePlan)
                issue_v_by(full, FillPlan<kBc, kTeamThreads, kHeadDimV>(), share, tile);
            else
                issue_v_by(full, plan, share, tile);
        };
        Dropout dropped(p, place, place.first_row + warp_row, lane);
        const Terms terms(p, place, place.first_row + warp_row, lane);

        // Only the first tile that is processed can reach beyond the tensor's end.
        q_fill.template issue<false>(FillPlan<kBr, kThreads>(), kWhole, q_area, place.rows - place.first_row,
                                     [&](int r) { return p.q + place.offset(p, p.q_stride, place.first_row + r) * 2; });
        if (kTeams == 1 || tile >= tiles.first)
            issue_k(Bool<false>{}, Plan(), kWhole, tile);
        fill_commit();
        q_fill.store(q_area);
        auto read_q = [&] {
            __syncthreads();  // Q is complete before it is read
#pragma unroll
            for (int m = 0; m < kRowTiles; m++)
#pragma unroll
                for (int step = 0; step < kDepth; step++)
                    ldmatrix_x4(q_frag[m][step], q_smem + pair_offset(lane_rows, step * kParts) + m * 16 * kPitch);
            if constexpr (kJoint || kTeams > 1)
                __syncthreads();  // Q is read before V is loaded into its area
        };
        if constexpr (kQInRegisters && !kQBehind) {
            fill_wait<0>();
            read_q();
        }
        if constexpr (kJoint) {
            if (kTeams == 1 || tile >= tiles.first)
                issue_v(Bool<false>{}, Plan(), kWhole, tile);
            fill_commit();
#pragma unroll
            for (int ahead = 1; ahead < kKStages - 1; ahead++) {
                numbers.pass();  // to this tile
                if (tile - ahead * kTeams >= tiles.first) {
                    issue_k(Bool<true>{}, Plan(), kWhole, tile - ahead * kTeams);
                    issue_v(Bool<true>{}, Plan(), kWhole, tile - ahead * kTeams);
                }
                fill_commit();
            }
        }
        if constexpr (kQBehind) {
            fill_wait<kKStages - 1>();
            read_q();
        }
        if constexpr (kTeams > 1 && !kQInRegisters) {
            fill_wait<kJoint ? kKStages - 1 : 0>();
            __syncthreads();  // Q is complete: all threads loaded it, but a team's barrier covers the team only
        }

        auto visit = [&](auto masked) {
            constexpr bool kMasked = decltype(masked)::value;
            const uint32 k_smem = k_stage(smem, team, tile), v_smem = v_stage(smem, team, tile);
            float s[kRowTiles][kColTiles][4];
            uint32 bias_words[kRowTiles][2][kColTiles];
            bool seen = true;

            numbers.find_next(tile);  // the look-ups run while S is computed
            if constexpr (kTermsFirst)
                seen = terms.template apply<kMasked, false>(s, tile);
            else if constexpr (kBiasAhead)
                terms.template load<kMasked>(bias_words, tile);
            k_fill.store(k_smem);
            if constexpr (kJoint) {
                v_fill.store(v_smem);
                fill_wait<kKStages - 2>();
                team_sync();  // K and V are complete; the tile before is read, its stage is free
            } else {
                fill_wait<0>();
                team_sync();  // K is complete; V of the tile before is read (Q too), V is free
            }

            // Copies that run meanwhile: the next tile, and V of this tile unless it came with K.
            constexpr int kAhead = kKStages > 1 ? kKStages - 1 : 1;
            constexpr int kFillStep = kJoint ? kDepth - 1 : 0;  // this V is waited for after S
            const int next = tile - kAhead * kTeams;
            const bool has_next = next >= tiles.first;
            auto issue_whole = [&] {
                if constexpr (!kJoint) {  // only a masked tile can reach beyond the end
                    issue_v(Bool<!kMasked>{}, Plan(), kWhole, tile);
                    fill_commit();
                    numbers.pass();  // to K of the next tile
                }
                if (kKStages > 1 && has_next) {
                    const Plan plan;
                    issue_k(Bool<true>{}, plan, kWhole, next);
                    if constexpr (kJoint)
                        issue_v(Bool<true>{}, plan, kWhole, next);
                }
            };
            if constexpr (kSkips)
                if (!seen) {  // no row of this warp sees a key of the tile: it only takes part in copies and barriers
                    if constexpr (kSpreadFill) {
                        const Plan plan;
                        issue_k(Bool<true>{}, plan, {0, 1, has_next}, next);
                        issue_v(Bool<true>{}, plan, {0, 1, has_next}, next);
                    } else {
                        issue_whole();
                    }
                    if constexpr (kKStages > 1)
                        fill_commit();
                    if constexpr (!kJoint) {
                        v_fill.store(v_smem);
                        fill_wait<kKStages - 1>();
                        team_sync();  // V is complete; K is read
                    }
                    if constexpr (kVInK && kKStages == 1)
                        team_sync();  // V is read
                    if (kKStages == 1 && has_next)
                        issue_k(Bool<true>{}, Plan(), kWhole, next);
                    if constexpr (kKStages == 1)
                        fill_commit();
                    return;
                }
            auto compute_s = [&](auto after_step) {
                if constexpr (!kTermsFirst)
                    clear_scores(s);
                product_qk(s, q_frag, q_smem, k_smem, lane_rows, lane_cols, after_step);
            };
            if constexpr (kSpreadFill) {
                const Plan plan;
                compute_s([&](int step) {
                    issue_k(Bool<true>{}, plan, {step, kDepth, has_next}, next);
                    issue_v(Bool<true>{}, plan, {step, kDepth, has_next}, next);
                });
            } else {
                compute_s([&](int step) {
                    if (step == kFillStep)
                        issue_whole();
                });
            }
            if constexpr (kKStages > 1)
                fill_commit();
            if constexpr (kParts > 1) {
                put_scores(smem, s);
                if constexpr (!kJoint) {
                    v_fill.store(v_smem);
                    fill_wait<kKStages - 1>();
                }
                team_sync();  // all of S is there; unless they are one stage, V is complete, and K is read
                add_scores(smem, s);
            }
            if constexpr (kSoftcap)
                cap_scores(s, p.softcap_rate);
            if constexpr (kBiasAhead)
                terms.template add<kMasked>(s, bias_words, tile);
            else if constexpr (kTerms && !kTermsFirst)
                terms.template apply<kMasked, true>(s, tile);
            if constexpr (kParts == 1 && !kJoint) {
                v_fill.store(v_smem);
                fill_wait<kKStages - 1>();
                team_sync();  // V is complete; K is read, so it is free
            }

            if constexpr (kMasked)
                mask_scores(s, p, place, place.first_row + warp_row, tile, lane);
            softmax_tile<kMayBeUnseen<kMasked>>(s, row, o, p.scale_log2);
            product_pv(o, s, dropped, tile, v_smem, lane_values, [&](int step) {
                if (!kVInK && kKStages == 1 && step == 0 && has_next)
                    issue_k(Bool<true>{}, Plan(), kWhole, next);
            });
            if constexpr (kVInK && kKStages == 1) {
                team_sync();  // V is read: the next K comes into its place
                if (has_next)
                    issue_k(Bool<true>{}, Plan(), kWhole, next);
            }
            if constexpr (kKStages == 1)
                fill_commit();
        };

        if constexpr (kWindow != Window::kNone) {
            // A single loop over the remaining tiles: a third loop after the two would take registers, which spill
            // elsewhere.
#pragma unroll 1
            for (; tile >= tiles.first; tile -= kTeams)
                if (tile >= tiles.unmasked || tile < tiles.plain)
                    visit(Bool<true>{});
                else
                    visit(Bool<false>{});
        } else {
#pragma unroll 1
            for (; tile >= max(tiles.unmasked, tiles.first); tile -= kTeams)
                visit(Bool<true>{});
#pragma unroll 1
            for (; tile >= tiles.first; tile -= kTeams)
                visit(Bool<false>{});
        }
    }
    write_rows<ValueTile>(p, place, o, row, smem, warp_row, lane);
}
