#pragma once
#include "features/window.cuh"
#include "forward/columns.cuh"

// ---- a window: which tiles a block processes, and which keys of them a row sees ------------------------------------
//
// Policy of kernels with a window; the others have full.cuh. Masks are applied to modified scores: a cap would
// turn -infinity into a finite number.

// Sets range to the tiles that rows of the block see.
template <class Range>
__device__ __forceinline__ void find_tiles(Range &range, const Params &p, const BlockCoord &coord)
{
    const int last_row = min(coord.first_row + kBr, coord.rows) - 1;
    const WindowKeys keys(p, coord.seq_k(p), coord.query(p, coord.first_row) + coord.seq_k(p) - coord.seq_q(p),
                          coord.query(p, last_row) + coord.seq_k(p) - coord.seq_q(p));
    range.first = keys.begin / kBc;
    range.count = (keys.end + kBc - 1) / kBc;
    range.unmasked = keys.end_of_all / kBc;
    range.plain = (keys.begin_of_all + kBc - 1) / kBc;
}

// Sets scores to -infinity if the key is beyond the tensor's end or outside the row's window. first_row: the warp's
// first row.
__device__ __forceinline__ void mask_scores(float (&s)[kRowTiles][kColTiles][4], const Params &p,
                                            const BlockCoord &coord, int first_row, int tile, int lane)
{
    const int lane_key = tile * kBc + lane % 4 * kLaneKeys;  // this lane's first column
    each_of<kRowTiles, 2>([&](int m, int h) {
        const int query = coord.query(p, first_row + m * 16 + h * 8 + lane / 4);
        const int at = query + coord.seq_k(p) - coord.seq_q(p);
        const int last = min(coord.seq_k(p), run_end(p, at)) - 1 - lane_key;
        const int first = run_begin(p, at) - lane_key;
        each_of<kColTiles, 2>([&](int n, int e) {
            if (key_column(n) + e > last || key_column(n) + e < first)
                s[m][n][2 * h + e] = minus_infinity();
        });
    });
}
