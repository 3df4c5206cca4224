#pragma once
#include "backward/cursor.cuh"
#include "lib/fill.cuh"
#include "backward/rows.cuh"

// ---- loads: K and V once, tiles of Q and dO with LSE and delta of their rows -----------------------------------
//
// Called by the kernel of bwd.cuh: load_keys and begin_queries in its prologue, issue_queries and store_queries in each
// step.

// Loads kBc rows of K and V. If later tiles pass through registers one by one (kFillLater), there are registers for
// only one tile here, too.
__device__ __forceinline__ void load_keys(const Params &p, const BlockCoord &coord, uint32 smem)
{
    Fill<kBc, kThreads> k_fill;
    Fill<kBc, kThreads, kHeadDimV> v_fill;
    const char *k_tile =
        p.k + (coord.batch * p.k_stride.batch + coord.kv_head * p.k_stride.head + coord.first_key * p.k_stride.seq) *
                  kElemBytes;
    const char *v_tile =
        p.v + (coord.batch * p.v_stride.batch + coord.kv_head * p.v_stride.head + coord.first_key * p.v_stride.seq) *
                  kElemBytes;
    k_fill.template issue<false>(FillPlan<kBc, kThreads>(), kWhole, smem + kKArea, p.seq_k - coord.first_key,
                                 [&](int r) { return k_tile + r * p.k_stride.seq * kElemBytes; });
    if constexpr (kFillLater)
        k_fill.store(smem + kKArea);
    v_fill.template issue<false>(FillPlan<kBc, kThreads, kHeadDimV>(), kWhole, smem + kVArea, p.seq_k - coord.first_key,
                                 [&](int r) { return v_tile + r * p.v_stride.seq * kElemBytes; });
    if constexpr (!kFillLater)
        k_fill.store(smem + kKArea);
    v_fill.store(smem + kVArea);
}

// The loads of a tile of queries, which are under way while another tile is processed.
struct QueryFills {
    Fill<kBr, kThreads> q;
    Fill<kBr, kThreads, kHeadDimV> d_o;
    RowFill rows;
};

__device__ __forceinline__ void issue_q(QueryFills &fills, const Params &p, const BlockCoord &coord, int first_head,
                                        uint32 smem, const Cursor &to, int stage)
{
    const char *tile = p.q + (coord.batch * p.q_stride.batch + (first_head + to.head) * p.q_stride.head +
                              int64(to.tile) * kBr * p.q_stride.seq) *
                                 kElemBytes;
    fills.q.template issue<false>(FillPlan<kBr, kThreads>(), kWhole, smem + kQArea + stage * kQTileBytes,
                                  p.seq_q - to.tile * kBr,
                                  [&](int r) { return tile + r * p.q_stride.seq * kElemBytes; });
}

__device__ __forceinline__ void issue_do(QueryFills &fills, const Params &p, const BlockCoord &coord, int first_head,
                                         uint32 smem, const Cursor &to, int stage)
{
    const char *tile = p.d_o + (coord.batch * p.do_stride.batch + (first_head + to.head) * p.do_stride.head +
                                int64(to.tile) * kBr * p.do_stride.seq) *
                                   kElemBytes;
    fills.d_o.template issue<false>(FillPlan<kBr, kThreads, kHeadDimV>(), kWhole, smem + kDoArea + stage * kDoTileBytes,
                                    p.seq_q - to.tile * kBr,
                                    [&](int r) { return tile + r * p.do_stride.seq * kElemBytes; });
}

__device__ __forceinline__ void issue_rows(QueryFills &fills, const Params &p, const BlockCoord &coord, int first_head,
                                           uint32 smem, const Cursor &to, int stage)
{
    fills.rows.issue(p, coord.batch, first_head + to.head, to.tile, coord.first_prepared,
                     smem + kRowArea + stage * kRowBytes);
}

// Starts to copy a tile of queries.
__device__ __forceinline__ void issue_queries(QueryFills &fills, const Params &p, const BlockCoord &coord,
                                              const QueryRange &range, int first_head, uint32 smem, const Cursor &to,
                                              int stage)
{
    if (!kFillLater && range.has(p, to)) {
        issue_q(fills, p, coord, first_head, smem, to, stage);
        issue_do(fills, p, coord, first_head, smem, to, stage);
        issue_rows(fills, p, coord, first_head, smem, to, stage);
    }
    fill_commit();
}

// Finishes the copy, when the stage is no longer read.
__device__ __forceinline__ void store_queries(QueryFills &fills, const Params &p, const BlockCoord &coord,
                                              const QueryRange &range, int first_head, uint32 smem, const Cursor &to,
                                              int stage)
{
    if (range.has(p, to)) {
        if constexpr (kFillLater)
            issue_q(fills, p, coord, first_head, smem, to, stage);
        fills.q.store(smem + kQArea + stage * kQTileBytes);
        if constexpr (kFillLater) {
            issue_do(fills, p, coord, first_head, smem, to, stage);
            issue_rows(fills, p, coord, first_head, smem, to, stage);
        }
        fills.d_o.store(smem + kDoArea + stage * kDoTileBytes);
        fills.rows.store(smem + kRowArea + stage * kRowBytes);
    }
}

constexpr int kAhead = kBarriers == 1 ? 2 : 1;  // how many tiles the copy is ahead of the tile that is processed

// The stage of that tile.
__device__ __forceinline__ int stage_ahead(int stage)
{
    if constexpr (kBarriers == 2)
        return kStages == 2 ? stage ^ 1 : 0;
    else if constexpr (kStages == 2)
        return stage;
    else
        return stage == 0 ? 2 : stage - 1;
}

// Prologue: loads the first tiles, from `at` on.
__device__ __forceinline__ void begin_queries(QueryFills &fills, const Params &p, const BlockCoord &coord,
                                              const TileRange &tiles, const QueryRange &range, int first_head,
                                              uint32 smem, const Cursor &at)
{
    issue_queries(fills, p, coord, range, first_head, smem, at, 0);
    store_queries(fills, p, coord, range, first_head, smem, at, 0);
    if constexpr (kBarriers == 1) {
        issue_queries(fills, p, coord, range, first_head, smem, after(at, 1, p, tiles), 1);
        store_queries(fills, p, coord, range, first_head, smem, after(at, 1, p, tiles), 1);
        fill_wait<1>();
        __syncthreads();  // K, V and the first tile are complete
    }
}
