#pragma once
#include "features/dropout.cuh"
#include "forward/coord.cuh"

// Dropout for this lane's elements of P, 16 columns at a time.
struct PhiloxDropout {
    const Params &p;
    const DropoutSeed seed;
    const int lane;
    const uint32 exponents;
    uint32 rows[kRowTiles][2];                 // words of the row keys of rows g, g + 8
    uint32 columns[4];                         // words of the column keys, for four times eight pairs of columns
    uint32 numbers[kRowTiles][4];              // bytes for sixteen columns: [half of rows][half of columns]
    uint32 bounds[kSplit ? kRowTiles : 1][2];  // of keep_pair, rows g, g + 8; bounds[0][0] for all unless kSplit
    static_assert(kSplit || kRowTiles <= 2, "a warp's rows are in 32 that choose thresholds together");

    // first_row: the warp's first row.
    __device__ __forceinline__ PhiloxDropout(const Params &p, const BlockCoord &coord, int first_row, int lane)
        : p(p), seed(p.features), lane(lane), exponents(opaque(0x64646464u, 0))
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
            if constexpr (kSplit) {
                // Neighbouring rows are heads.
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int row = first_row + m * 16 + h * 8 + lane / 4, query = coord.query(p, row);
                    const int head = head_of_whole(p, coord.batch, coord.query_head(p, row));
                    uint32 x[4];
                    row_keys(x, seed, head, query / 32, query % 8 * 4 + lane % 4);
                    rows[m][h] = one_of(x, query / 8 % 4);
                    row_keys(x, seed, head, query / 32, 3);
                    bounds[m][h] = choose_bounds(p.features, x[0], query / 2 % 4, lane % 4 * 2);
                }
            } else {
                const int head = head_of_whole(p, coord.batch, coord.query_head(p, 0));
                const uint32 word = keys_of_rows(rows[m], seed, head, first_row / 16 + m, lane);
                bounds[0][0] = choose_bounds(p.features, word, lane / 8, lane % 4 * 2);
            }
        }
    }

    // Prepares columns 16 * step ... of the tile.
    __device__ __forceinline__ void begin_step(int tile, int step)
    {
        const int sixteen = tile * (kBc / 16) + step;
        if (step == 0 || sixteen % 4 == 0)
            column_keys(columns, seed, sixteen / 4, lane_pair(lane), lane % 4);
        multiply_by(kBc % 64 == 0 ? columns[step % 4] : one_of(columns, sixteen % 4));
    }

    // Multiplies the row keys by the column keys. word: this lane's column key of the sixteen columns.
    __device__ __forceinline__ void multiply_by(uint32 word)
    {
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
            mma_bytes(numbers[m], rows[m][0], rows[m][1], word, {0, 0, 0, 0});
    }

    // The factors of two elements of P: half h of row tile m, half n of the columns.
    __device__ __forceinline__ uint32 keep(int m, int h, int n) const
    {
        return keep_pair(numbers[m][2 * h + n], exponents, 0x4140, kSplit ? bounds[m][h] : bounds[0][0]);
    }

    // Applies dropout to two packed elements.
    __device__ __forceinline__ uint32 apply(uint32 elements, int m, int h, int n) const
    {
        return keep_elements(elements, keep(m, h, n));
    }
};

using Dropout = PhiloxDropout;

// The factor of O at the end.
__device__ __forceinline__ float kept_scale(const Params &p)
{
    return keep_scale(p);
}
