#pragma once
#include "forward/loads.cuh"

// ---- S = Q K^T of the elements as they are ---------------------------------------------------------------------
//
// Policy of kernels that do not round Q and K to 8-bit integers; the others have int8_scores.cuh.
using Queries = QueryFragments;

__device__ __forceinline__ const Queries &make_queries(const QueryFragments &q_frag, const Params &, const BlockCoord &,
                                                       int)
{
    return q_frag;
}

// The head pointer of the rows of K that are loaded.
__device__ __forceinline__ const char *loaded_keys(const Params &p, const BlockCoord &coord, int kv_head)
{
    return key_head(p.k, p.k_stride, coord, kv_head);
}

// Starts copying a share of a tile of K. kFull: all rows of the tile are before the tensor's end.
template <bool kFull>
__device__ __forceinline__ void issue_k(KeyFills &fills, const Pages &pages, const Params &p, const BlockCoord &coord,
                                        const KeyStream &to, const KeyPlan &plan, Share share, int tile)
{
    const int last = coord.seq_k(p) - 1 - tile * kBc;
    const auto rows = rows_of(pages, plan, tile, p.features.k_steps);
    fills.k.template issue<kWide || kFull>(
        plan, share, k_stage(to.smem, to.team, tile), kWide ? kBc : coord.seq_k(p) - tile * kBc,
        [&](int r) { return rows.at(to.k, p.k_stride, kWide ? wide_key(r, last) : r); });
}

// Products need no scale.
struct KeyScale {
    __device__ __forceinline__ KeyScale(const Queries &, int) {}
};

__device__ __forceinline__ void scale_scores(float (&)[kRowTiles][kColTiles][4], const Queries &, const KeyScale &) {}
