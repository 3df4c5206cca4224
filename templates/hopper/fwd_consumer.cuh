#pragma once
#include "features/modifier.cuh"
#include "forward/tiles.cuh"
#include "hopper/fwd_group.cuh"
#include "hopper/fwd_products.cuh"
#include "hopper/softmax.cuh"

// ---- consumer: a warpgroup that computes 64 rows of O ---------------------------------------------------------------
//
// compute_rows has the loop over tiles, from the last to the first; Rows::step is one step of it. A step starts S of
// its tile j, and then O += P V of the tile before, j + 1. The softmax runs while the tensor cores compute that second
// product:
//
//     start S(j) | start O += P(j+1) V(j+1) | wait for S(j) | softmax | wait for O | pack P | rescale O
//     kSpeculatesMax, without a mask:
//         ... | P by speculative maxima | wait for O | pack P | rarely S again, softmax, rescale O
//
// With kPingPong, warpgroups start these two products in turn: one computes its softmax while the tensor cores work for
// another.

// Sets V to 0 after a packed sequence's end. The rows there belong to the next sequence and may hold NaN. P is 0 for
// them, but 0 * NaN is NaN. All consumer warpgroups share the work.
__device__ __forceinline__ void clear_rows(uint32 tile, int valid_rows)
{
#pragma unroll 1
    for (int i = valid_rows * 8 + threadIdx.x; i < kBc * 8; i += kGroups * 128)
#pragma unroll
        for (int page = 0; page < kPages; page++)
            store_shared_16(tile + page * kTilePageBytes + i * 16, uint4{0, 0, 0, 0});
}

// The steps of the mainloop. The struct holds references only: with arrays as members, ptxas keeps them in memory until
// loops are unrolled, and chooses other registers.
struct Rows {
    const Params &p;
    const BlockCoord &coord;
    const Barriers &barriers;
    Group &group;
    const uint32 smem, q_smem;
    float (&o)[kRowTiles][kOutTiles][4];
    RowState &row;
    float (&s)[kRowTiles][kColTiles][4];
    uint32 (&probabilities)[kBc / 16][4];
    uint32 (&words)[kRowTiles][2][kColTiles];  // words of the bias, read while products run (kBiasEarly)
    uint32 (&keeps)[kBc / 16][4];              // factors of P from dropout (kKeepsEarly)
    Dropout &dropped;
    ScoreUnit &unit;  // of an S that begins as the bias (bias_tiles.cuh)
    const Terms &terms;
    const uint32 (&slopes)[4];  // columns of Q for a term in the product (kAlibiMma)
    int &tile;

    __device__ __forceinline__ uint32 k_smem() const
    {
        return smem + kKArea + group.k.index * kTileBytes;
    }

    __device__ __forceinline__ uint32 v_smem() const
    {
        return smem + kVArea + group.v.index * kTileBytes;
    }

    // Waits for K, then starts S = Q K^T.
    template <bool kMasked> __device__ __forceinline__ void start_s()
    {
        if constexpr (kBiasInAccumulator)
            group.side.begin(s, unit, kMasked);
        barrier_wait(barriers.k(group.k.index).full, group.k.parity);
        group.ping_pong.take();
        start_scores<kAlibiMma && !kMasked>(s, q_smem, k_smem(), slopes, extra_k_columns(smem));
        if constexpr (kKeepsEarly)
            make_keeps(keeps, dropped, ColumnKeyTile(smem, group.k));
    }

    // Waits for V, then starts O += P V of the tile before.
    __device__ __forceinline__ void start_o()
    {
        barrier_wait(barriers.v(group.v.index).full, group.v.parity);
        if constexpr (kDropsBeside)
            drop(probabilities, dropped, ColumnKeyTile(smem, group.v));  // runs while the next S, if any, is computed
        start_output(o, probabilities, v_smem());
    }

    // Converts P to 16-bit A fragments, with dropout applied unless start_o does it.
    __device__ __forceinline__ void pack()
    {
        pack_scores(s, probabilities);
        if constexpr (kKeepsEarly) {
            drop(probabilities, keeps);
        } else if constexpr (kDropout && !kDropsBeside) {
            // V of this tile: that of the tile before has been given back
            barrier_wait(barriers.v(group.v.index).full, group.v.parity);
            drop(probabilities, dropped, ColumnKeyTile(smem, group.v));
        }
    }

    __device__ __forceinline__ void release_k()
    {
        if constexpr (kBiasInAccumulator)
            group.side.release();
        barrier_arrive_by(group.lane, barriers.k(group.k.index).empty);
        group.k.advance();
    }

    __device__ __forceinline__ void release_v()
    {
        barrier_arrive_by(group.lane, barriers.v(group.v.index).empty);
        group.v.advance();
    }

    // Modifies S, and applies terms and mask. Adds to `offset` what all scores of a row have in common; the softmax
    // takes it into account (kAlibiOffsets).
    template <bool kMasked> __device__ __forceinline__ void add_terms(float (&offset)[kRowTiles][2])
    {
        modify_scores(s, p);
        if constexpr (kAlibiOffsets && kCausal && !kMasked) {
            terms.add_columns(s, offset, tile);
        } else if constexpr (kBiasStaged && !kBiasInAccumulator) {
            if constexpr (!kBiasEarly)
                group.side.read(words);
            terms.template add<kMasked>(s, words, tile);
        } else if constexpr (kTerms && !kBiasInAccumulator) {
            terms.template apply<kMasked, true>(s, tile);
        }
        if constexpr (kMasked)
            mask_scores(s, p, coord, coord.first_row + group.warp_row, tile, group.lane);
    }

    // Turns S into P; returns how O must be rescaled.
    template <bool kMasked> __device__ __forceinline__ Rescale softmax()
    {
        float offset[kRowTiles][2] = {};
        add_terms<kMasked>(offset);
        if constexpr (kAlibiOffsets)
            return softmax_tile<kMayBeUnseen<kMasked>>(s, row, p.scale_log2, ScoresWithOffset{offset});
        else
            return softmax_tile<kMayBeUnseen<kMasked>>(s, row, p.scale_log2);
    }

    __device__ __forceinline__ void finish_o()
    {
        wgmma_wait<0>();
        pin(o);
        release_v();
    }

    template <bool kMasked> __device__ __forceinline__ void make_p_by_maxima()
    {
        release_k();
        const Rescale rescale = softmax<kMasked>();
        finish_o();
        pack();
        rescale.apply(o);
    }

    // One step: S and P of the tile, and O += P V of the tile before.
    template <bool kMasked> __device__ __forceinline__ void step()
    {
        start_s<kMasked>();
        start_o();
        group.ping_pong.pass();
        if constexpr (kBiasEarly)
            group.side.read(words);
        wgmma_wait<1>();  // S is there
        pin(s);
        if constexpr (kSpeculatesMax && !kMasked)
            speculative_p(*this);
        else
            make_p_by_maxima<kMasked>();
        pin(o);
    }

    // First step: the tile with the highest keys; O has nothing to add yet.
    __device__ __forceinline__ void begin()
    {
        start_s<true>();
        group.ping_pong.pass();
        if constexpr (kBiasEarly)
            group.side.read(words);
        wgmma_wait<0>();
        pin(s);
        release_k();
        softmax<true>();  // no rescaling: O is 0
        pack();
        if constexpr (kVarlen)
            clear_values();
    }

    // Clears the rows of V after a sequence's end (clear_rows).
    __device__ __forceinline__ void clear_values()
    {
        const int valid_rows = coord.seq_k(p) - tile * kBc;
        if (valid_rows < kBc) {
            barrier_wait(barriers.v(group.v.index).full, group.v.parity);
            clear_rows(v_smem(), valid_rows);
            fence_products();
            named_barrier(1 + 2 * kGroups, kGroups * 128);  // zeros are there before any warpgroup's product reads
        }
    }

    // Last step: O += P V of the tile with the lowest keys.
    __device__ __forceinline__ void end()
    {
        if constexpr (kOwnOPlace)
            group.release_q(barriers);
        group.ping_pong.take();
        start_o();
        group.ping_pong.pass();
        finish_o();
        if constexpr (!kOwnOPlace)
            named_barrier(1 + kGroups + group.index, 128);  // Q of this warpgroup is read: O comes into its place
    }
};

// Computes O of 64 rows that see at least one key. O is not yet divided by the row sums.
__device__ __forceinline__ void compute_rows(const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                             const Barriers &barriers, Group &group,
                                             float (&o)[kRowTiles][kOutTiles][4], RowState &row)
{
    const uint32 smem = barriers.smem, q_smem = smem + kQArea + group.index * kGroupBytes;
    float s[kRowTiles][kColTiles][4];
    uint32 probabilities[kBc / 16][4], words[kRowTiles][2][kColTiles], keeps[kBc / 16][4], slopes[4];
    int tile = tiles.count - 1;
    const int first_row = coord.first_row + group.warp_row;
    Dropout dropped(p, coord, first_row, group.lane);
    if constexpr (kKeepsEarly)
        each_of<kBc / 16, 4>([&](int step, int i) { keeps[step][i] = 0; });
    const Terms terms(p, coord, first_row, group.lane);
    if constexpr (kAlibiMma)
        slope_columns(terms, group.lane, slopes);
    ScoreUnit unit(p);
    Rows rows{p,     coord, barriers, group, smem,  q_smem, o,   row, s, probabilities,
              words, keeps, dropped,  unit,  terms, slopes, tile};
    rows.begin();
    tile--;
    if constexpr (kWindow != Window::kNone) {
#pragma unroll 1
        for (; tile >= tiles.first; tile--)
            if (tile >= tiles.unmasked || tile < tiles.plain)
                rows.template step<true>();
            else
                rows.template step<false>();
    } else {
#pragma unroll 1
        for (; tile >= max(tiles.unmasked, tiles.first); tile--)
            rows.template step<true>();
#pragma unroll 1
        for (; tile >= tiles.first; tile--)
            rows.template step<false>();
    }
    rows.end();
}
