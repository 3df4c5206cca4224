#pragma once
#include "features/alibi.cuh"
#include "forward/columns.cuh"
#include "forward/coord.cuh"

// If the part of a row and that of a column are computed separately, columns count from the tile's last one. Then no
// part is larger than the term, because no key is after the row's own position. fp32 rounds parts as finely as the
// term, and calls with other tiles or other keys have nearly the same scores.

// Returns a lane's last column in a tile, relative to its first one.
__device__ __forceinline__ int last_column()
{
    return key_column(kColTiles - 1) + 1;
}

// This lane's first column, relative to the tile's last one, kept if ALiBi is computed by the product (kAlibiMma).
struct KeptColumn {
    float first_column;

    __device__ __forceinline__ explicit KeptColumn(int lane) : first_column(float(lane % 4 * kLaneKeys - (kBc - 1))) {}
};

struct NoColumn {
    static constexpr float first_column = 0.0f;

    __device__ __forceinline__ explicit NoColumn(int) {}
};

using FirstColumn = Either<kAlibiMma, KeptColumn, NoColumn>::Type;

// ALiBi for this lane's rows.
struct AlibiOfRows : FirstColumn {
    // position: p, without the shift, minus this lane's first column in tile 0. It is whole, and may be large, so the
    // shift, which may be a fraction, is added to differences.
    float slope[kRowTiles][2], position[kRowTiles][2], shift;

    __device__ __forceinline__ AlibiOfRows(const Params &p, const BlockCoord &coord, int first_row, int lane)
        : FirstColumn(lane), shift(p.features.distance_shift)
    {
        each_of<kRowTiles, 2>([&](int m, int h) {
            const int row = min(first_row + m * 16 + h * 8 + lane / 4, coord.rows - 1);
            slope[m][h] = alibi_slope(p, coord.batch, coord.query_head(p, row));
            position[m][h] = float(coord.query(p, row) + coord.seq_k(p) - coord.seq_q(p) - lane % 4 * kLaneKeys);
        });
    }

    // The ALiBi term of a score: row tile m, half h, column tile n, column e of this lane. kBefore: no key of the tile
    // is after a row's own position.
    template <bool kBefore> __device__ __forceinline__ float term(int tile, int m, int h, int n, int e) const
    {
        // Rows of one head have distances in common, which are computed once: row 8 at column 8 has that of row 0 at 0.
        constexpr bool kShared = !kBefore && !kPackedHeads;
        const int column = key_column(n) + e - last_column() - (kShared ? m * 16 + h * 8 : 0);
        const float base = kShared ? to_last(tile, 0, 0) : to_last(tile, m, h);
        return alibi_term<kBefore>(slope[m][h], base, -float(column));
    }

    // The term in two parts, if no key of the tile is after a row's own position: the part of the row ...
    __device__ __forceinline__ float offset(int tile, int m, int h) const
    {
        if constexpr (kAlibiMma)
            return -slope[m][h] * (position[m][h] + first_column - float(tile * kBc) + shift);
        else
            return -slope[m][h] * to_last(tile, m, h);
    }

    // ... and the part of the column, added to the score.
    __device__ __forceinline__ float added(float score, int m, int h, int n, int e) const
    {
        if constexpr (kAlibiMma)
            return fmaf(slope[m][h], first_column + float(key_column(n) + e), score);
        else
            return fmaf(slope[m][h], float(key_column(n) + e - last_column()), score);
    }

    // Returns the distance of a row to this lane's last column in a tile.
    __device__ __forceinline__ float to_last(int tile, int m, int h) const
    {
        return position[m][h] - float(tile * kBc + last_column()) + shift;
    }

    // kAlibiMma: true if 16 bits hold the slope, so that the product contains slope * column. If false, it is added
    // here.
    __device__ __forceinline__ bool in_product(int m, int h) const
    {
        return Elem::kHasRangeOfFp32 || fabsf(slope[m][h]) <= 65504.0f;
    }
};

struct NoAlibi {
    __device__ __forceinline__ NoAlibi(const Params &, const BlockCoord &, int, int) {}

    template <bool kBefore> __device__ __forceinline__ float term(int, int, int, int, int) const
    {
        return 0.0f;
    }

    __device__ __forceinline__ float offset(int, int, int) const
    {
        return 0.0f;
    }

    __device__ __forceinline__ float added(float score, int, int, int, int) const
    {
        return score;
    }

    __device__ __forceinline__ bool in_product(int, int) const
    {
        return false;
    }
};

using Alibi = Either<kAlibi, AlibiOfRows, NoAlibi>::Type;
