#pragma once
#include "forward/epilogue_fp32.cuh"
#include "forward/softmax.cuh"
#include "forward/tiles.cuh"
#include "lib/fill.cuh"

// ---- forward of fp32 numbers --------------------------------------------------------------------------------------
//
// One block computes kBr rows of O. Coordinates, masks, terms, softmax and epilogue are those of forward/fwd.cuh,
// because a lane has the elements of S and O that it has of accumulators of mma.sync. Products are a policy: tf32.cuh,
// ffma.cuh. K and V have one tile each in shared memory.
//
// Timeline of the step of tile t, with the copies that run meanwhile:
//
//   wait K (t) | S = Q K^T          | wait V (t) | softmax   O += P V
//              | copy V (t) ....... |            | copy K (t - 1) ...

using KeyPlan = FillPlan<kBc, kThreads>;
using ValuePlan = FillPlan<kBc, kThreads, kHeadDimV>;

// The copies that are under way, and where they come from and go to.
struct KeyStream {
    Fill<kBc, kThreads> k_fill;
    Fill<kBc, kThreads, kHeadDimV> v_fill;
    const char *k, *v;  // head pointers
    uint32 k_smem, v_smem;

    __device__ __forceinline__ KeyStream(const Params &p, const BlockCoord &coord, uint32 smem)
        : k(key_head(p.k, p.k_stride, coord, coord.kv_head(p))), v(key_head(p.v, p.v_stride, coord, coord.kv_head(p))),
          k_smem(smem + kKArea), v_smem(smem + kVArea)
    {
    }

    // Starts copying a tile of K. Rows beyond the sequence's end become zeros.
    __device__ __forceinline__ void issue_k(const Params &p, const BlockCoord &coord, int tile)
    {
        const KeyRows rows(p, coord, tile);
        k_fill.template issue<false>(KeyPlan(), kWhole, k_smem, coord.seq_k(p) - tile * kBc,
                                     [&](int r) { return rows.at(k, p.k_stride, r); });
        fill_commit();
    }

    // The same of V.
    __device__ __forceinline__ void issue_v(const Params &p, const BlockCoord &coord, int tile)
    {
        const KeyRows rows(p, coord, tile);
        v_fill.template issue<false>(ValuePlan(), kWhole, v_smem, coord.seq_k(p) - tile * kBc,
                                     [&](int r) { return rows.at(v, p.v_stride, r); });
        fill_commit();
    }
};

// Adds the terms of scores.
template <bool kMasked> __device__ __forceinline__ void add_terms(ScoreTile &s, const Terms &terms, int tile)
{
    if constexpr (kBiasAhead) {
        uint32 words[kRowTiles][2][kColTiles];
        terms.template load<kMasked>(words, tile);
        terms.template add<kMasked>(s, words, tile);
    } else if constexpr (kTerms) {
        terms.template apply<kMasked, true>(s, tile);
    }
}

// One step of the mainloop. warp_row: the warp's first row in the block.
template <bool kMasked>
__device__ __forceinline__ void mainloop_step(OutputTile &o, RowState &row, KeyStream &keys, const Terms &terms,
                                              const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                              uint32 q_smem, int warp_row, int lane, int tile)
{
    ScoreTile s;
    keys.k_fill.store(keys.k_smem);
    fill_wait<0>();
    __syncthreads();  // K is complete, and Q in the first step; V of the tile before is read, so it is free
    keys.issue_v(p, coord, tile);
    clear(s);
    product_of_rows<RowTile>(s, q_smem, keys.k_smem, lane);
    add_terms<kMasked>(s, terms, tile);
    if constexpr (kMasked)
        mask_scores(s, p, coord, coord.first_row + warp_row, tile, lane);
    keys.v_fill.store(keys.v_smem);
    fill_wait<0>();
    __syncthreads();  // V is complete; K is read, so it is free
    if (tile - 1 >= tiles.first)
        keys.issue_k(p, coord, tile - 1);
    softmax_tile<kMayBeUnseen<kMasked>>(s, row, o, p.scale_log2);
    product_pv(o, s, keys.v_smem, lane);
}

// The kernel; kThreads threads.
__device__ __forceinline__ void forward(const Params &p)
{
    extern __shared__ __align__(128) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * (16 * kRowTiles);
    const BlockCoord coord(p, WorkOfGrid());
    if constexpr (kVarlen) {
        clear_unused_rows(p);
        if (coord.batch < 0)
            return;
    }
    const TileRange tiles(p, coord);
    OutputTile o = {};
    RowState row;
    begin_rows(row, p);
    if (tiles.count > tiles.first) {
        const uint32 q_smem = smem + warp_row * kPitch;
        KeyStream keys(p, coord, smem);
        const Terms terms(p, coord, coord.first_row + warp_row, lane);
        Fill<kBr, kThreads> q_fill;
        q_fill.template issue<false>(FillPlan<kBr, kThreads>(), kWhole, smem, coord.rows - coord.first_row, [&](int r) {
            return p.q + coord.offset(p, p.q_stride, coord.first_row + r) * kElemBytes;
        });
        keys.issue_k(p, coord, tiles.count - 1);
        q_fill.store(smem);
#pragma unroll 1
        for (int tile = tiles.count - 1; tile >= tiles.first; tile--) {
            bool masked = tile >= tiles.unmasked;
            if constexpr (kWindow != Window::kNone)
                masked = masked || tile < tiles.plain;
            if (masked)
                mainloop_step<true>(o, row, keys, terms, p, coord, tiles, q_smem, warp_row, lane, tile);
            else
                mainloop_step<false>(o, row, keys, terms, p, coord, tiles, q_smem, warp_row, lane, tile);
        }
    }
    write_rows_from_registers(p, coord, o, row, warp_row, lane);
}
