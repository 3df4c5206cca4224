#pragma once
#include "backward/dropout.cuh"

// Dropout where queries are rows: for a warp's sixteen rows, one tile of keys at a time.
struct PhiloxRows {
    const DropoutSeed seed;
    const uint32 exponents;
    uint32 rows[2];                 // words of the row keys of this lane's rows
    uint32 columns[4];              // words of the column keys, for four times eight pairs of columns
    int which;                      // index of those column keys; -1: none yet
    uint32 bounds;                  // for keep_pair
    uint32 keep[kDqBc / 16][2][2];  // [16 keys][half of rows][half of keys]: factors of two neighbouring keys

    // first_row: the warp's first row.
    __device__ __forceinline__ PhiloxRows(const Params &p, int batch, int head, int first_row, int lane)
        : seed(p.features), exponents(opaque(0x64646464u, 0)), which(-1)
    {
        const uint32 word = keys_of_rows(rows, seed, head_of_whole(p, batch, head), first_row / 16, lane);
        bounds = choose_bounds(p.features, word, lane / 8, lane % 4 * 2);
    }

    __device__ __forceinline__ void begin(const Params &p, int tile, int lane)
    {
        static_assert(64 % kDqBc == 0, "a tile's keys are in 64 that one call of Philox has pairs of");
        if (which != tile * kDqBc / 64) {
            which = tile * kDqBc / 64;
            column_keys(columns, seed, which, lane_pair(lane), lane % 4);
        }
#pragma unroll
        for (int step = 0; step < kDqBc / 16; step++) {
            uint32 numbers[4];
            mma_bytes(numbers, rows[0], rows[1], one_of(columns, (tile * (kDqBc / 16) + step) % 4), {0, 0, 0, 0});
#pragma unroll
            for (int i = 0; i < 4; i++)
                keep[step][i / 2][i % 2] = keep_pair(numbers[i], exponents, 0x4140, bounds);
        }
    }

    // The factors of row half h, column tile n.
    __device__ __forceinline__ float2 factors(int h, int n) const
    {
        return keep_factors(keep[n / 2][h][n % 2]);
    }
};

using DroppedRows = PhiloxRows;
