#pragma once
#include "backward/scores.cuh"
#include "backward/cursor.cuh"
#include "hopper/bwd_products.cuh"

// ---- S^T becomes P^T ------------------------------------------------------------------------------------------------

// Hides rows after a sequence's end: sets LSE to infinity and delta to 0, so their P and dS are 0. The barrier in
// clear_rows orders these stores, too.
__device__ __forceinline__ void hide_rows(uint32 lse, uint32 delta, int valid_rows)
{
    for (int i = valid_rows + threadIdx.x; i < kBr; i += kKeyWorkers) {
        store_shared_4(lse + i * 4, __float_as_uint(-minus_infinity()));
        store_shared_4(delta + i * 4, 0);
    }
}

// Clears rows of two tiles after a sequence's end. They belong to the next sequence and may hold NaN. P and dS are 0
// there, but 0 * NaN is NaN. All consumer warps share the work.
template <int kRows> __device__ __forceinline__ void clear_rows(uint32 tile, uint32 other, int valid_rows)
{
#pragma unroll 1
    for (int i = valid_rows * 8 + threadIdx.x; i < kRows * 8; i += kKeyWorkers)
#pragma unroll
        for (int page = 0; page < kPages; page++) {
            store_shared_16(tile + page * kRows * kPageRowBytes + i * 16, uint4{0, 0, 0, 0});
            store_shared_16(other + page * kRows * kPageRowBytes + i * 16, uint4{0, 0, 0, 0});
        }
    fence_products();
    named_barrier(1, kKeyWorkers);  // the zeros are there
}

// LSE or delta of this lane's queries, two in each n8 tile.
struct RowValues {
    float2 of[kQueryTiles];
};

__device__ __forceinline__ void load_row_values(RowValues &x, uint32 smem)
{
#pragma unroll
    for (int n = 0; n < kQueryTiles; n++)
        x.of[n] = load_shared_8(smem + n * 8 * 4);
}

// scores_to_p and dp_to_ds (backward/scores.cuh) with LSE and delta in registers.
__device__ __forceinline__ void scores_to_p(Scores &s, const RowValues &lse, float scale_log2)
{
    each_element(s, [&](float &x, int, int n, int e) {
        x = exp2_approx(fmaf(x, scale_log2, e % 2 ? -lse.of[n].y : -lse.of[n].x));
    });
}

__device__ __forceinline__ void dp_to_ds(Scores &dp, const Scores &p, const RowValues &delta)
{
    each_element(
        dp, [&](float &x, int m, int n, int e) { x = p[m][n][e] * (x - (e % 2 ? delta.of[n].y : delta.of[n].x)); });
}

// Turns S^T of a warp's 16 keys into P^T. first_key: of the warp, within the block; lse: of this lane's queries, or its
// address in shared memory; capped: receives S^T as modified, without terms.
template <class Lse>
__device__ __forceinline__ void make_p(Scores &s, Scores &capped, const Params &p, const BlockCoord &coord,
                                       const TileRange &tiles, const Cursor &at, int first_key, Lse lse, int lane)
{
    const int key = coord.first_key + first_key + lane / 4, query = at.tile * kBr + lane % 4 * 2;
    const bool masked = at.tile < tiles.unmasked || (kWindow != Window::kNone && at.tile >= tiles.masked);
    if constexpr (kModified) {
        modify_scores(s, p);
        copy_scores(capped, s);
    }
    if constexpr (kTerms) {
        const Terms terms(p, coord.batch, coord.kv_head * p.group + at.head);
        if (masked)
            add_terms<false>(s, p, terms, key, query);
        else
            add_terms<kCausal>(s, p, terms, key, query);
    }
    scores_to_p(s, lse, p.scale_log2);
    if (masked)
        mask_p(s, p, key, query);
}
