#pragma once
#include "forward/parts.cuh"
#include "forward/tiles.cuh"
#include "lib/fill.cuh"

// ---- loads: Q once, tiles of K and V --------------------------------------------------------------------------------
//
// fwd.cuh calls these in its prologue and in each step (step.cuh). issue_k is in key_rows.cuh and int8_scores.cuh. A
// team of warps processes every kTeams-th tile. Policies: ScaleHeads, ScaleFills (kv8_scales.cuh, no_scales.cuh).

using QueryFragments = uint32[kRowTiles][kDepth][4];
using QueryFill = Fill<kBr, kThreads>;
using ValueFill = Fill<kValueRows, kTeamThreads, kValueColumns>;
using KeyPlan = FillPlan<kBc, kTeamThreads, kKv8 ? kKeyColumns : kHeadDim>;

// The empty policy: V is loaded with K.
struct NoFill {
    template <bool kFull, class... Any> __device__ __forceinline__ void issue(const Any &...) {}

    __device__ __forceinline__ void store(uint32) const {}
};

// V has its own load plan if its rows and the rows of K differ.
constexpr bool kOwnValuePlan = kHeadDimV < kHeadDim || kParts > 1;

// The loads of tiles of K and V that are under way while another tile is processed.
struct KeyFills : ScaleFills {
    Fill<kBc, kTeamThreads, kKeyColumns> k;
    Either<kVInK, NoFill, ValueFill>::Type v;
};

using Pages = PageNumbersOf<KeyPlan>;

// Where a team's tiles of K and V come from and go to.
struct KeyStream : ScaleHeads {
    const char *k, *v;  // head pointers
    uint32 smem;
    int team;
};

// Starts copying a share of a tile of V, unless it is part of K.
template <bool kFull, class Plan>
__device__ __forceinline__ void issue_v_by(KeyFills &fills, const Pages &pages, const Params &p,
                                           const BlockCoord &coord, const KeyStream &to, const Plan &plan, Share share,
                                           int tile)
{
    const int last = coord.seq_k(p) - 1 - tile * kBc;
    const auto rows = rows_of(pages, plan, tile, p.features.v_steps);
    fills.v.template issue<kWide || kFull>(
        plan, share, v_stage(to.smem, to.team, tile), kWide ? kBc : coord.seq_k(p) - tile * kBc,
        [&](int r) { return rows.at(to.v, p.v_stride, kWide ? wide_key(r, last) : r); });
    fills.template issue_v_scales<kWide || kFull>(p, to, v_stage(to.smem, to.team, tile), pages, rows, plan, share,
                                                  tile, coord.seq_k(p) - tile * kBc,
                                                  [&](int r) { return kWide ? wide_key(r, last) : r; });
}

// Writes the scales of a tile from registers to shared memory, where they pass through registers.
__device__ __forceinline__ void store_scales(KeyFills &fills, const KeyStream &to, int tile)
{
    fills.store_k_scales(k_stage(to.smem, to.team, tile));
    fills.store_v_scales(v_stage(to.smem, to.team, tile));
}

template <bool kFull>
__device__ __forceinline__ void issue_v(KeyFills &fills, const Pages &pages, const Params &p, const BlockCoord &coord,
                                        const KeyStream &to, const KeyPlan &plan, Share share, int tile)
{
    if constexpr (kVInK)
        return;
    else if constexpr (kFp8Values)  // a tile takes as many bytes in the workspace as one of K
        fills.v.template issue<true>(ValueFill::Plan(), share, v_stage(to.smem, to.team, tile), kValueRows, [&](int r) {
            return to.v + int64(tile) * (kBc * kKeyColumns * kElemBytes) + r * kBc;
        });
    else if constexpr (kOwnValuePlan)
        issue_v_by<kFull>(fills, pages, p, coord, to, FillPlan<kBc, kTeamThreads, kValueColumns>(), share, tile);
    else
        issue_v_by<kFull>(fills, pages, p, coord, to, plan, share, tile);
}
