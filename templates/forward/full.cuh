#pragma once
#include "forward/columns.cuh"
#include "forward/coord.cuh"

// ---- no window: which tiles a block processes, and which keys of them a row sees -----------------------------------
//
// Policy of kernels without a window; the others have window.cuh. The mainloops of fwd.cuh, hopper/fwd_consumer.cuh and
// hopper/split_consumer.cuh call mask_scores for tiles that need a mask. Masks are applied to modified scores: a cap
// would turn -infinity into a finite number.

// Sets range to the tiles that rows of the block see.
template <class Range>
__device__ __forceinline__ void find_tiles(Range &range, const Params &p, const BlockCoord &coord)
{
    int keys = coord.seq_k(p), keys_of_all = coord.seq_k(p);  // seen by some row of the block; by every row
    if (kCausal) {
        const int offset = coord.seq_k(p) - coord.seq_q(p);
        const int last_row = min(coord.first_row + kBr, coord.rows) - 1;
        keys = max(0, min(keys, coord.query(p, last_row) + 1 + offset));
        keys_of_all = max(0, min(keys, coord.query(p, coord.first_row) + 1 + offset));
    }
    if constexpr (kSplit)
        range.first = 0;
    range.count = (keys + kBc - 1) / kBc;
    range.unmasked = keys_of_all / kBc;
}

// Sets scores to -infinity if the key is beyond the tensor's end or, if causal, after the row's own position.
__device__ __forceinline__ void mask_scores(float (&s)[kRowTiles][kColTiles][4], const Params &p,
                                            const BlockCoord &coord, int first_row, int tile, int lane)
{
    int limit[kRowTiles][2];  // last visible column, relative to this lane's first column
    const int seen = coord.seq_k(p) - 1 - tile * kBc - lane % 4 * kLaneKeys;
    each_of<kRowTiles, 2>([&](int m, int h) {
        const int r = first_row + m * 16 + h * 8 + lane / 4;
        limit[m][h] = kCausal ? min(seen, seen + coord.query(p, r) + 1 - coord.seq_q(p)) : seen;
    });
    each_element(s, [&](float &x, int m, int n, int e) {
        if (key_column(n) + e % 2 > limit[m][e / 2])  // the column is a constant after unrolling
            x = minus_infinity();
    });
}
