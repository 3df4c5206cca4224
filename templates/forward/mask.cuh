#pragma once
#include "features/window.cuh"
#include "forward/columns.cuh"
#include "forward/place.cuh"

// ---- masks: which keys a row sees ----------------------------------------------------------------------------------
//
// The mainloops of fwd.cuh, hopper/fwd_consumer.cuh and hopper/split_consumer.cuh call mask_scores for tiles that need
// a mask. Masks are applied after softcap, which would turn -infinity into a finite number.

// Sets scores to -infinity if the key is beyond the tensor's end or outside the row's window. first_row: the warp's
// first row.
__device__ __forceinline__ void mask_outside_window(float (&s)[kRowTiles][kColTiles][4], const Params &p,
                                                    const BlockPlace &place, int first_row, int tile, int lane)
{
    const int lane_key = tile * kBc + lane % 4 * kLaneKeys;  // this lane's first column
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int query = place.query(p, first_row + m * 16 + h * 8 + lane / 4);
            const int at = query + place.seq_k(p) - place.seq_q(p);
            const int last = min(place.seq_k(p), run_end(p, at)) - 1 - lane_key;
            const int first = run_begin(p, at) - lane_key;
#pragma unroll
            for (int n = 0; n < kColTiles; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (key_column(n) + e > last || key_column(n) + e < first)
                        s[m][n][2 * h + e] = minus_infinity();
        }
}

// Sets scores to -infinity if the key is beyond the tensor's end or, if causal, after the row's own position.
__device__ __forceinline__ void mask_after_end(float (&s)[kRowTiles][kColTiles][4], const Params &p,
                                               const BlockPlace &place, int first_row, int tile, int lane)
{
    int limit[kRowTiles][2];  // last visible column, relative to this lane's first column
    const int seen = place.seq_k(p) - 1 - tile * kBc - lane % 4 * kLaneKeys;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = first_row + m * 16 + h * 8 + lane / 4;
            limit[m][h] = kCausal ? min(seen, seen + place.query(p, r) + 1 - place.seq_q(p)) : seen;
        }
        // Columns are constants after unrolling.
#pragma unroll
    for (int m = 0; m < kRowTiles; m++)
#pragma unroll
        for (int n = 0; n < kColTiles; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (key_column(n) + e % 2 > limit[m][e / 2])
                    s[m][n][e] = minus_infinity();
}

__device__ __forceinline__ void mask_scores(float (&s)[kRowTiles][kColTiles][4], const Params &p,
                                            const BlockPlace &place, int first_row, int tile, int lane)
{
    if constexpr (kWindow != Window::kNone)
        mask_outside_window(s, p, place, first_row, tile, lane);
    else
        mask_after_end(s, p, place, first_row, tile, lane);
}
