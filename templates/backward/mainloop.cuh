#pragma once
#include "backward/cursor.cuh"
#include "backward/exchange.cuh"
#include "backward/products.cuh"
#include "backward/warps.cuh"

// ---- the mainloop's steps: what a warp does with a tile of queries --------------------------------------------------
//
// `step` of bwd.cuh calls step_of_part for each part of its queries, then add_others; bwd.cuh has the timeline. In a
// part:
//
//     kLate    S^T | dP^T | P^T | dV += P^T dO | dS^T | dK += dS^T Q
//     else     S^T | P^T | dV += P^T dO | dP^T | dS^T | dK += dS^T Q
//
// P^T and dS^T stay in registers as A fragments. They are also stored: P^T for warps with the same keys, dS^T for those
// warps and for dQ (dq_step.cuh).

using SumOfKeys = float[kKeyTiles][2 * kOutPairs][4];      // dK of a warp
using SumOfValues = float[kKeyTiles][2 * kValuePairs][4];  // dV of a warp

// Computes S^T = K Q^T or dP^T = V dO^T. Form: layout of the rows; row_smem: this warp's keys; tile_smem: the queries;
// rows, cols: this lane's ldmatrix offsets.
template <class Form>
__device__ __forceinline__ void compute_scores(Scores &s, uint32 tile_smem, uint32 cols, uint32 row_smem, uint32 rows)
{
    clear(s);
    product_of_rows<Form>(
        s, [&](int step, uint32(&a)[kKeyTiles][4]) { load_rows<Form>(a, row_smem, rows, step); }, tile_smem, cols);
}

// Turns S^T into P^T. capped: receives S^T as modified, without terms; query: this warp's first query in the tile `at`.
template <bool kMasked>
__device__ __forceinline__ void compute_p(Scores &s, Scores &capped, const Params &p, const BlockCoord &coord,
                                          const Terms &terms, const WarpCoord &own, const Cursor &at, int query,
                                          TileAreas areas)
{
    if constexpr (kModified) {
        modify_scores(s, p);
        copy_scores(capped, s);
    }
    if constexpr (kTerms)
        add_terms<kCausal && !kMasked>(s, p, terms, coord.first_key + own.key + own.lane / 4,
                                       at.tile * kBr + query + own.lane % 4 * 2);
    scores_to_p(s, areas.rows + query * 4, p.scale_log2);
    if constexpr (kMasked)
        mask_p(s, p, coord.first_key + own.key + own.lane / 4, at.tile * kBr + query + own.lane % 4 * 2);
}

// sum += P^T dO, or dS^T Q. tile_smem: the queries of these fragments.
template <int kTiles>
__device__ __forceinline__ void add_product(float (&sum)[kKeyTiles][kTiles][4], const Fragments &frag, uint32 tile_smem,
                                            uint32 lane_offset)
{
    product_of_columns<kQueryWarps, kQuerySteps>(
        sum,
        [&](int step, uint32(&a)[kKeyTiles][4]) {
            each_of<kKeyTiles, 4>([&](int m, int i) { a[m][i] = frag[step][m][i]; });
        },
        tile_smem, lane_offset);
}

// Processes a part of the queries of a tile: S^T, P^T, dV, dP^T, dS^T, dK.
template <bool kMasked>
__device__ __forceinline__ void step_of_part(const Params &p, const BlockCoord &coord, const Terms &terms,
                                             Dropout &dropout, const WarpCoord &own, const LaneOffsets &offsets,
                                             TileAreas areas, const Cursor &at, int first_head, uint32 smem, int part,
                                             SumOfKeys &dk, SumOfValues &dv)
{
    const int query = own.query + part * 8 * kQueryTiles;  // first query in the tile
    Scores s, dp;
    Scores capped;
    Fragments frag;
    compute_scores<RowTile>(s, areas.q + query * kPitch, offsets.cols, smem + kKArea + own.key * kPitch, offsets.rows);
    if constexpr (kLate)
        compute_scores<ValueTile>(dp, areas.d_o + query * ValueTile::kPitch, offsets.value_cols,
                                  smem + kVArea + own.key * ValueTile::kPitch, offsets.value_rows);
    compute_p<kMasked>(s, capped, p, coord, terms, own, at, query, areas);
    pack_scores(frag, s);
    dropout.begin(p, coord.sequence(), first_head + at.head, at.tile * kBr + query, own.lane);
    dropout.mask(frag);
    if constexpr (kModified && !kBiasGradient)
        multiply_derivatives(s, capped);
    if constexpr (kQueryWarps > 1)
        store_p(frag, areas.shared_p + (own.warp * kParts + part) * kQuerySteps * kKeyTiles * kFragmentBytes);
    add_product(dv, frag, areas.d_o + query * ValueTile::kPitch, areas.value_out);
    if constexpr (!kLate)
        compute_scores<ValueTile>(dp, areas.d_o + query * ValueTile::kPitch, offsets.value_cols,
                                  smem + kVArea + own.key * ValueTile::kPitch, offsets.value_rows);
    dropout.mask(dp);
    dp_to_ds(dp, s, areas.rows + (kBr + query) * 4);
    if constexpr (kBiasGradient) {
        add_dbias(dp, p, coord.sequence(), first_head + at.head, coord.first_key + own.key + own.lane / 4,
                  at.tile * kBr + query + own.lane % 4 * 2);
        if constexpr (kModified)
            multiply_derivatives(dp, capped);  // so far this is the gradient of the capped scores
    }
    pack_scores(frag, dp);
    if constexpr (!kDqSeparate || kQueryWarps > 1)
        store_ds(frag, areas.scores, own.key, query, own.lane);
    add_product(dk, frag, areas.q + query * kPitch, areas.out);
}

// Adds what other warps with the same keys computed for their queries: dV += P^T dO, dK += dS^T Q.
__device__ __forceinline__ void add_others(const WarpCoord &own, const LaneOffsets &offsets, TileAreas areas,
                                           SumOfKeys &dk, SumOfValues &dv)
{
#pragma unroll
    for (int other = 1; other < kQueryWarps; other++) {
        const int from = own.query_warp ^ other;
        const int from_query = from * kWarpQueries;
        const uint32 theirs = areas.shared_p + (own.key_warp * kQueryWarps + from) * kWarpFragments * kFragmentBytes;
        product_of_columns<kQueryWarps, kParts * kQuerySteps>(
            dv,
            [&](int step, uint32(&a)[kKeyTiles][4]) {
#pragma unroll
                for (int m = 0; m < kKeyTiles; m++) {
                    const uint4 x = load_shared_16(theirs + (step * kKeyTiles + m) * kFragmentBytes);
                    a[m][0] = x.x, a[m][1] = x.y, a[m][2] = x.z, a[m][3] = x.w;
                }
            },
            areas.d_o + from_query * ValueTile::kPitch, areas.value_out);
        product_of_columns<kQueryWarps, kParts * kQuerySteps>(
            dk,
            [&](int step, uint32(&a)[kKeyTiles][4]) {
#pragma unroll
                for (int m = 0; m < kKeyTiles; m++)
                    ldmatrix_x4(a[m],
                                areas.scores + ScoreTile::chunk_offset(own.key + m * 16 + own.lane % 16,
                                                                       from_query / 8 + 2 * step + own.lane / 16));
            },
            areas.q + from_query * kPitch, areas.out);
    }
}
