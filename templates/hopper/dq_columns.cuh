#pragma once
#include "backward/dq_sums.cuh"

// ---- order of the dQ sums: fragments of dQ^T ------------------------------------------------------------------------
//
// Policy; the other one is backward/dq_fragments.cuh. A warpgroup computes dQ^T, and each of its warps has 16 columns
// of dQ. A fragment has these columns of 8 queries; a lane has queries lane % 4 * 2 and the one after it, of columns
// lane / 4 and lane / 4 + 8. A tile is [8 queries][warp] of fragments, also with packed sequences.
constexpr bool kDqTransposed = true;
constexpr int kDqGroupRows = 8;
static_assert(kHoldsKeys && kHeadDimPadded == 64 && kDqWidth == 64,
              "four warps have 16 columns each, of K in registers");

constexpr int kDqQueries = 32;  // of a product
using DqTile = float[1][kDqQueries / 8][4];

// The place of 16 sums that a thread converts: half of a fragment's columns, of queries 2 * pair and 2 * pair + 1. Two
// lanes have a pair, and eight lanes a fragment. Lanes that have the same queries write neighbouring columns.
struct SummedPart {
    static constexpr int kRowsApart = 1;  // from the upper row to the lower one

    int64 group;  // the first row of the group that is stored together
    const float *from;
    int64 row;   // the upper one
    int chunk;   // of 8 columns of dQ
    int column;  // the first of these, in a group of rows that is cut

    // index: of the part, from from_tile and its row on.
    template <class Row> __device__ __forceinline__ SummedPart(int index, const float *from_tile, Row tile_row)
    {
        const int fragment = index / 8, pair = index / 2 % 4, half = index % 2;
        from = from_tile + fragment * kDqFragment + pair * 4 + half * 2;
        group = tile_row + fragment / 4 * kDqGroupRows;
        row = group + pair * 2;
        chunk = fragment % 4 * 2 + half;
        column = chunk * 8;
    }

    // The first row of the group that is stored together.
    __device__ __forceinline__ int64 group_row() const
    {
        return group;
    }

    // Reads the sums; not of a group that is cut.
    __device__ __forceinline__ DqNumbers read() const
    {
        DqNumbers numbers;
#pragma unroll
        for (int i = 0; i < 8; i++) {  // of lane 4 * i + pair
            const float2 x = __ldg(reinterpret_cast<const float2 *>(from + i * 16));
            numbers.upper[i] = x.x;
            numbers.lower[i] = x.y;
        }
        return numbers;
    }
};
