#pragma once
#include "forward/loads.cuh"

// ---- loads of K as it is in memory, for exact_scores.cuh and kv8_scores.cuh ----------------------------------------

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
    fills.template issue_k_scales<kWide || kFull>(p, to, k_stage(to.smem, to.team, tile), pages, rows, plan, share,
                                                  tile, coord.seq_k(p) - tile * kBc,
                                                  [&](int r) { return kWide ? wide_key(r, last) : r; });
}
