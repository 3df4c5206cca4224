#pragma once
#include "backward/loads.cuh"

// ---- backward of fp32 numbers -------------------------------------------------------------------------------------
//
// One block computes kBc rows of dK and dV, which stay in registers, over all queries that see its keys, and adds to
// dQ. The formulas are in backward/bwd.cuh; coordinates, tiles of queries, masks and terms are the same, because a lane
// has the elements of S^T that it has of accumulators of mma.sync. Products are a policy: bwd_tf32.cuh, bwd_ffma.cuh.
//
// Warps are arranged as kKeyWarps x kQueryWarps, over S^T and over (keys, columns) of dK and dV. P and dS go to the
// same area of shared memory, one after the other. Timeline of the step of tile t, with the copies that run meanwhile:
//
//   wait t | S^T P | barrier | dV  dP^T | barrier | dS    | barrier | dK | barrier | dQ
//                                       | copy dO (t + 1) ..........................
//                                                                      | copy Q (t + 1)

using SumOfKeys = KeySum<kOutGroups>;
using SumOfValues = KeySum<kValueGroups>;

// The warp's part of S^T, dK and dV.
struct WarpCoord {
    int lane, warp, query_warp;
    int key;    // its first key in the block
    int query;  // its first query in a tile

    __device__ __forceinline__ WarpCoord()
        : lane(threadIdx.x % 32), warp(threadIdx.x / 32), query_warp(warp % kQueryWarps),
          key(warp / kQueryWarps * 16 * kKeyTiles), query(query_warp * 8 * kQueryTiles)
    {
    }

    __device__ __forceinline__ bool has_queries() const
    {
        return kAllHaveQueries || query < kBr;
    }
};

// Stores P or dS of a warp as rows of queries.
__device__ __forceinline__ void store_scores(const Scores &s, uint32 smem, const WarpCoord &own)
{
    const uint32 to = smem + kScoreArea + (own.query + own.lane % 4 * 2) * ScoreTile::kPitch +
                      (own.key + key_place(own.lane / 4)) * 4;
    each_element(s, [&](float x, int m, int n, int e) {
        store_shared_4(to + (n * 8 + e % 2) * ScoreTile::kPitch + (m * 16 + e / 2 * 8) * 4, __float_as_uint(x));
    });
}

// Computes P^T of this warp.
template <bool kMasked>
__device__ __forceinline__ void compute_p(Scores &s, const Params &p, const BlockCoord &coord, const Terms &terms,
                                          const WarpCoord &own, const Cursor &at, uint32 smem)
{
    const int key = coord.first_key + own.key + own.lane / 4, query = at.tile * kBr + own.query + own.lane % 4 * 2;
    clear(s);
    product_of_rows<RowTile>(s, smem + kKArea + own.key * kPitch, smem + kQArea + own.query * kPitch, own.lane);
    if constexpr (kTerms)
        add_terms<kCausal && !kMasked>(s, p, terms, key, query);
    scores_to_p(s, smem + kRowArea + (own.query + own.lane % 4 * 2) * 4, p.scale_log2);
    if constexpr (kMasked)
        mask_p(s, p, key, query);
}

// Turns P^T into dS^T.
__device__ __forceinline__ void compute_ds(Scores &s, const Params &p, const BlockCoord &coord, const WarpCoord &own,
                                           const Cursor &at, int head, uint32 smem)
{
    Scores dp;
    clear(dp);
    product_of_rows<ValueTile>(dp, smem + kVArea + own.key * ValueTile::kPitch,
                               smem + kDoArea + own.query * ValueTile::kPitch, own.lane);
    dp_to_ds(dp, s, smem + kRowArea + (kBr + own.query + own.lane % 4 * 2) * 4);
    if constexpr (kBiasGradient)
        add_dbias(dp, p, coord.sequence(), head, coord.first_key + own.key + own.lane / 4,
                  at.tile * kBr + own.query + own.lane % 4 * 2);
    copy_scores(s, dp);
}

// Adds dS K of a tile to dQ. counter: with kDqInOrder, receives the counter of the tile.
__device__ __forceinline__ void add_tile_to_dq(const Params &p, const BlockCoord &coord, const WarpCoord &own,
                                               const Cursor &at, int head, uint32 smem, uint32 *&counter)
{
    const int64 batch_head = int64(coord.batch) * p.heads_q + head;
    const int row = own.warp / kDqColWarps * kDqRows;
    float *const of_head = reinterpret_cast<float *>(p.dq) + coord.batch * p.dq_stride.batch + head * p.dq_stride.head;
    if constexpr (kDqInOrder)
        counter = turn_counter(p, coord, batch_head, at.tile);
#pragma unroll 1
    for (int g = 0; g < kDqGroups; g++) {
        const int group = g * kDqColWarps + own.warp % kDqColWarps;
        DqSum sum = {};
        compute_dq(sum, smem + kScoreArea + row * ScoreTile::kPitch, smem + kKArea, group, own.lane);
        if (kDqInOrder && g == 0)
            await_turn(counter, own.lane == 0 ? load_counter(counter) : 0, blocks_before(p, coord, at.tile), own.lane);
        put_dq(p, of_head, at.tile * kBr + row, sum, group, own.lane);
    }
}

// One step of the mainloop: tile `at`, and copies of tile `next`.
template <bool kMasked>
__device__ __forceinline__ void mainloop_step(SumOfKeys &dk, SumOfValues &dv, QueryFills &fills, const Params &p,
                                              const BlockCoord &coord, const QueryRange &range, const WarpCoord &own,
                                              const Cursor &at, const Cursor &next, uint32 smem, uint32 *&counter)
{
    const int first_head = coord.kv_head * p.group, head = first_head + at.head;
    const uint32 scores = smem + kScoreArea + own.key * 4;
    const bool more = range.has(p, next);
    Scores s;
    fill_wait<0>();
    __syncthreads();  // Q, dO and rows are complete (K and V too); dS of the tile before is read
    if (kDqInOrder && counter != nullptr && threadIdx.x == 0)
        count_up(counter);  // all warps have added to dQ of the tile before
    if (own.has_queries()) {
        compute_p<kMasked>(s, p, coord, Terms(p, coord.batch, head), own, at, smem);
        store_scores(s, smem, own);
    }
    __syncthreads();  // P is complete
    add_to_keys<kHeadDimV, kValueGroups>(dv, scores, smem + kDoArea, own.query_warp, own.lane);
    if (own.has_queries())
        compute_ds(s, p, coord, own, at, head, smem);
    __syncthreads();  // P, dO, LSE and delta are read
    if (more) {
        issue_do(fills, p, coord, first_head, smem, next, 0);
        issue_rows(fills, p, coord, first_head, smem, next, 0);
    }
    if (own.has_queries())
        store_scores(s, smem, own);
    __syncthreads();  // dS is complete
    add_to_keys<kHeadDim, kOutGroups>(dk, scores, smem + kQArea, own.query_warp, own.lane);
    if (more) {
        fills.d_o.store(smem + kDoArea);
        fills.rows.store(smem + kRowArea);
    }
    __syncthreads();  // Q is read
    if (more)
        issue_q(fills, p, coord, first_head, smem, next, 0);
    fill_commit();
    if (p.dq != nullptr)
        add_tile_to_dq(p, coord, own, at, head, smem, counter);
    if (more)
        fills.q.store(smem + kQArea);
}

__device__ __forceinline__ void write_keys(const Params &p, const BlockCoord &coord, const WarpCoord &own,
                                           const SumOfKeys &dk, const SumOfValues &dv)
{
    const int key = coord.first_key + own.key;
    if (p.dk != nullptr)
        put_keys<kHeadDim, kOutGroups>(p.dk, coord.batch * p.dk_stride.batch + coord.kv_head * p.dk_stride.head,
                                       p.dk_stride, key, p.seq_k, dk, p.scale, own.query_warp, own.lane);
    if (p.dv != nullptr)
        put_keys<kHeadDimV, kValueGroups>(p.dv, coord.batch * p.dv_stride.batch + coord.kv_head * p.dv_stride.head,
                                          p.dv_stride, key, p.seq_k, dv, 1.0f, own.query_warp, own.lane);
}

// The kernel; kThreads threads.
__device__ __forceinline__ void backward(const Params &all)
{
    extern __shared__ __align__(128) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const WarpCoord own;
    unsigned block = blockIdx.x;
    if constexpr (kDqInOrder)
        block = block_ticket(all, smem);
    const BlockCoord coord(all, block);
    uint32 *counter = nullptr;  // with kDqInOrder: counter of the dQ tile that was added to last
    clear_unused_keys(all, coord);
    if (coord.is_empty())
        return;
    OwnParams p = coord.params(all);  // lengths and addresses are those of the block's sequence
    const TileRange tiles(p, coord);
    const QueryRange range(p, tiles, 0);
    SumOfKeys dk = {};
    SumOfValues dv = {};
    if (range.has_some(p, tiles)) {
        QueryFills fills;
        load_keys(p, coord, smem);
        Cursor at = range.start(p, tiles);
        begin_queries(fills, p, coord, tiles, range, coord.kv_head * p.group, smem, at);
#pragma unroll 1
        while (range.has(p, at)) {
            const Cursor next = after(at, 1, p, tiles);
            if (at.tile < tiles.unmasked || (kWindow != Window::kNone && at.tile >= tiles.masked))
                mainloop_step<true>(dk, dv, fills, p, coord, range, own, at, next, smem, counter);
            else
                mainloop_step<false>(dk, dv, fills, p, coord, range, own, at, next, smem, counter);
            at = next;
        }
    }
    if constexpr (kDqInOrder) {
        __syncthreads();  // all warps have added to dQ of the last tile
        if (counter != nullptr && threadIdx.x == 0)
            count_up(counter);
    }
    write_keys(p, coord, own, dk, dv);
}
