#pragma once
#include "features/modifier.cuh"
#include "forward/loads.cuh"
#include "forward/products.cuh"
#include "forward/softmax.cuh"

// ---- the mainloop's step: what a warp does with a tile of keys ------------------------------------------------------
//
// fwd.cuh calls mainloop_step for each tile, and has the timeline.

using ScoreTile = float[kRowTiles][kColTiles][4];
using OutputTile = float[kRowTiles][kOutTiles][4];
using BiasWords = uint32[kRowTiles][2][kColTiles];

constexpr int kSteps = kInt8Scores || kKv8 ? KeyTile::kChunks / 2 : kDepth;  // of S = Q K^T
constexpr bool kTermsBefore = kTermsFirst && !kInt8Scores && !kKv8;  // S begins with its terms; 8-bit S begins with 0

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

// Where a warp's rows are, and this lane's ldmatrix offsets.
struct WarpRows {
    uint32 q_smem;
    uint32 rows, cols, values;
    int first_row;  // of the warp, in the tensor
    int lane;
};

// With three stages, scales that pass through registers belong to the tile after the awaited one.
constexpr int kScalesAhead = kHalfScales && kKStages > 2 ? kKStages - 2 : 0;

// Waits for K of the tile, and for V if they are one stage.
__device__ __forceinline__ void await_k(KeyFills &fills, uint32 k_smem, uint32 v_smem)
{
    fills.k.store(k_smem);
    if constexpr (kScalesAhead == 0)
        fills.store_k_scales(k_smem);
    if constexpr (kJoint) {
        fills.v.store(v_smem);
        if constexpr (kScalesAhead == 0)
            fills.store_v_scales(v_smem);
        fill_wait<kKStages - 2>();
        team_sync();  // K and V are complete; the tile before is read, its stage is free
    } else {
        fill_wait<0>();
        team_sync();  // K is complete; V of the tile before is read, and Q if V takes its area; so V can be loaded
    }
}

// Waits for V of the tile.
__device__ __forceinline__ void await_v(KeyFills &fills, uint32 v_smem)
{
    fills.v.store(v_smem);
    fills.store_v_scales(v_smem);
    fill_wait<kKStages - 1>();
}

// Starts the copies that run during the step: the next tile, and V of this tile unless it came with K.
template <bool kMasked>
__device__ __forceinline__ void issue_whole(KeyFills &fills, Pages &pages, const Params &p, const BlockCoord &coord,
                                            const KeyStream &to, int tile, int next, bool has_next)
{
    if constexpr (!kJoint) {  // only a masked tile can reach beyond the end
        issue_v<!kMasked>(fills, pages, p, coord, to, KeyPlan(), kWhole, tile);
        fill_commit();
        pages.pass();  // to K of the next tile
    }
    if (kKStages > 1 && has_next) {
        const KeyPlan plan;
        issue_k<true>(fills, pages, p, coord, to, plan, kWhole, next);
        if constexpr (kJoint)
            issue_v<true>(fills, pages, p, coord, to, plan, kWhole, next);
    }
}

// S = Q K^T of the tile, with the copies that run meanwhile.
template <bool kMasked>
__device__ __forceinline__ void compute_s(ScoreTile &s, const Queries &queries, KeyFills &fills, Pages &pages,
                                          const Params &p, const BlockCoord &coord, const KeyStream &to,
                                          const WarpRows &own, uint32 k_smem, int tile, int next, bool has_next)
{
    if constexpr (!kTermsBefore)
        clear(s);
    if constexpr (kSpreadFill) {
        const KeyPlan plan;
        product_qk(s, queries, own.q_smem, k_smem, own.rows, own.cols, [&](int step) {
            issue_k<true>(fills, pages, p, coord, to, plan, {step, kSteps, has_next}, next);
            issue_v<true>(fills, pages, p, coord, to, plan, {step, kSteps, has_next}, next);
        });
    } else {
        constexpr int kFillStep = kJoint ? kSteps - 1 : 0;  // if not kJoint, V of this tile is waited for after S
        product_qk(s, queries, own.q_smem, k_smem, own.rows, own.cols, [&](int step) {
            if (step == kFillStep)
                issue_whole<kMasked>(fills, pages, p, coord, to, tile, next, has_next);
        });
    }
}

// Sums S over the warps that share rows (sum_scores.cuh).
__device__ __forceinline__ void sum_parts(ScoreTile &s, KeyFills &fills, uint32 smem, uint32 v_smem)
{
    put_scores(smem, s);
    if constexpr (!kJoint)
        await_v(fills, v_smem);
    team_sync();  // all of S is there; unless they are one stage, V is complete, and K is read
    add_scores(smem, s);
}

// Modifies S, and applies the terms that are added after the product.
template <bool kMasked>
__device__ __forceinline__ void modify(ScoreTile &s, const Params &p, const Terms &terms, const BiasWords &words,
                                       int tile)
{
    modify_scores(s, p);
    if constexpr (kBiasAhead)
        terms.template add<kMasked>(s, words, tile);
    else if constexpr (kTerms && !kTermsBefore)
        terms.template apply<kMasked, true>(s, tile);
}

// True if only a mask comes between products and softmax: then the softmax scales the products itself.
constexpr bool kScaledInSoftmax = !kModified && !kTerms;

// Softmax of a tile, and O += P V. The next K is copied meanwhile if it has one stage of its own.
template <bool kMasked, class Scores>
__device__ __forceinline__ void compute_o(ScoreTile &s, const Scores &scores, const KeyScale &scale, OutputTile &o,
                                          RowState &row, Dropout &dropped, KeyFills &fills, const Pages &pages,
                                          const Params &p, const BlockCoord &coord, const KeyStream &to,
                                          const WarpRows &own, uint32 v_smem, int tile, int next, bool has_next)
{
    if constexpr (kMasked)
        mask_scores(s, p, coord, own.first_row, tile, own.lane);
    softmax_tile<kMayBeUnseen<kMasked>, MadeP>(s, row, o, p.scale_log2, scores);
    product_pv(o, s, row, scale, dropped, tile, v_smem, own.values, [&](int step) {
        if (!kVInK && kKStages == 1 && step == 0 && has_next)
            issue_k<true>(fills, pages, p, coord, to, KeyPlan(), kWhole, next);
    });
}

// One step of the mainloop.
template <bool kMasked>
__device__ __forceinline__ void mainloop_step(OutputTile &o, RowState &row, const Queries &queries, Dropout &dropped,
                                              const Terms &terms, KeyFills &fills, Pages &pages, const Params &p,
                                              const BlockCoord &coord, const TileRange &tiles, const KeyStream &to,
                                              const WarpRows &own, const int &tile)
{
    const uint32 k_smem = k_stage(to.smem, to.team, tile), v_smem = v_stage(to.smem, to.team, tile);
    ScoreTile s;
    BiasWords words;
    bool seen = true;  // false: no row of this warp sees a key of the tile; it takes part in copies and barriers only
    pages.find_next(tile);  // the look-ups run while S is computed
    if constexpr (kTermsBefore)
        seen = terms.template apply<kMasked, false>(s, tile);
    else if constexpr (kBiasAhead)
        terms.template load<kMasked>(words, tile);
    const KeyScale scale(queries, tile);
    if (kScalesAhead > 0 && tile - kScalesAhead * kTeams >= tiles.first)
        store_scales(fills, to, tile - kScalesAhead * kTeams);
    await_k(fills, k_smem, v_smem);
    const int next = tile - (kKStages > 1 ? kKStages - 1 : 1) * kTeams;
    const bool has_next = next >= tiles.first;
    if (!kSkips || seen)
        compute_s<kMasked>(s, queries, fills, pages, p, coord, to, own, k_smem, tile, next, has_next);
    else
        issue_whole<kMasked>(fills, pages, p, coord, to, tile, next, has_next);
    if constexpr (kKStages > 1)
        fill_commit();
    if constexpr (kParts > 1)
        sum_parts(s, fills, to.smem, v_smem);
    const auto scores = scale_scores<kScaledInSoftmax, kMasked>(s, queries, scale, k_smem, own.lane);
    modify<kMasked>(s, p, terms, words, tile);
    if constexpr (kParts == 1 && !kJoint) {
        await_v(fills, v_smem);
        team_sync();  // V is complete; K is read, so it is free
    }
    if (!kSkips || seen)
        compute_o<kMasked>(s, scores, scale, o, row, dropped, fills, pages, p, coord, to, own, v_smem, tile, next,
                           has_next);
    if constexpr (kVInK && kKStages == 1)
        team_sync();  // V is read: the next K comes into its place
    if (kKStages == 1 && has_next && (kVInK || (kSkips && !seen)))
        issue_k<true>(fills, pages, p, coord, to, KeyPlan(), kWhole, next);
    if constexpr (kKStages == 1)
        fill_commit();
}
