#pragma once
#include "backward/dq_sums.cuh"

// ---- order of the dQ sums: fragments of m16 tiles of rows -----------------------------------------------------------
//
// Policy; the other one is hopper/dq_columns.cuh. A fragment has 16 rows and 8 columns; a lane has two columns of rows
// lane / 4 and lane / 4 + 8. A tile is [warp][m16 tile][n8 tile] of fragments.
//
// Packed sequences: the m16 tiles of a sequence are contiguous, [m16 tile][column warp][n8 tile] of fragments. An m16
// tile that the sequence's end cuts has its columns in the same order.
constexpr bool kDqTransposed = false;
constexpr int kDqGroupRows = 16;
constexpr int kDqWarpPart = kDqRowTiles * kDqPairs * 2 * kDqFragment;
constexpr int kDqTileStep = kVarlen ? 2 * kDqPairs * kColWarps : 2 * kDqPairs;  // fragments from m16 tile to m16 tile

using DqTile = float[kDqPartTiles][2 * kDqPairs][4];

// Packed sequences: address of a warp's first fragment in m16 tile `first` of a tile of queries.
template <class Coord>
__device__ __forceinline__ float *dq_sums(const Params &p, const Coord &coord, int64 batch_head, int tile, int first,
                                          int col_warp)
{
    const int64 row = batch_head * p.features.total_q + coord.own.sequence.first_q + tile * kBr + first * 16;
    return p.dq_sum + row * kDqWidth + col_warp * 2 * kDqPairs * kDqFragment;
}

// Adds to an m16 tile with fewer than 16 rows. sum: address of this warp's columns.
__device__ __forceinline__ void add_cut_rows(float *sum, const float (&dq)[2 * kDqPairs][4], int rows, int lane)
{
    each_of<2 * kDqPairs, 4>([&](int n, int e) {
        const int row = lane / 4 + e / 2 * 8;
        if (row < rows)
            add_global_4(sum + row * kDqWidth + n * 8 + lane % 4 * 2 + e % 2, dq[n][e]);
    });
}

// Adds a warp's m16 tiles. sum: address of the first fragment; rows: with packed sequences, rows from there to the
// sequence's end.
__device__ __forceinline__ void add_dq(float *sum, const DqTile &dq, int lane, int rows = 0, int col_warp = 0)
{
#pragma unroll
    for (int m = 0; m < kDqPartTiles; m++) {
        if (kVarlen && rows - m * 16 < 16) {
            constexpr int kNarrower = 2 * kDqPairs * (kDqFragment - 8);  // columns of a warp than their fragments
            add_cut_rows(sum + m * 16 * kDqWidth - col_warp * kNarrower, dq[m], rows - m * 16, lane);
            continue;
        }
#pragma unroll
        for (int n = 0; n < 2 * kDqPairs; n++) {
            float *fragment = sum + (m * kDqTileStep + n) * kDqFragment;
            if constexpr (kAddFour) {
                add_global_16(fragment + lane * 4, dq[m][n]);
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    add_global_4(fragment + e * 32 + lane, dq[m][n][e]);
            }
        }
    }
}

// The place of 16 sums that a thread converts, 8 columns of rows quad_row and quad_row + 8 of an m16 tile. Eight lanes
// take the rows of one fragment; the next eight lanes take the next fragment.
struct SummedPart {
    static constexpr int kRowsApart = 8;  // from the upper row to the lower one

    int quad_row;  // the upper row in the m16 tile
    const float *from;
    int64 row;   // the upper one
    int chunk;   // of 8 columns of dQ
    int column;  // the first of these, in a group of rows that is cut

    // index: of the part, from from_tile and its row on.
    template <class Row> __device__ __forceinline__ SummedPart(int index, const float *from_tile, Row tile_row)
    {
        quad_row = index % 8;
        const int fragment = index / 8;
        from = from_tile + fragment * kDqFragment;
        constexpr int kTileFragments = kDqWidth / 8;  // of an m16 tile (kVarlen)
        int warp, m;
        if constexpr (kVarlen) {
            m = fragment / kTileFragments;
            warp = fragment % kTileFragments / (2 * kDqPairs);
        } else {
            warp = fragment / (kDqRowTiles * 2 * kDqPairs);
            m = fragment / (2 * kDqPairs) % kDqRowTiles;
        }
        const int n = fragment % (2 * kDqPairs);
        if constexpr (kVarlen)
            row = tile_row + m * 16 + quad_row;
        else
            row = tile_row + (warp / kColWarps * kDqRowTiles + m) * 16 + quad_row;
        if constexpr (kWgmma)
            chunk = warp % kColWarps * 2 * kDqPairs + n;
        else
            chunk = (n / 2 * kColWarps + warp % kColWarps) * 2 + n % 2;
        column = fragment % kTileFragments * 8;
    }

    // The first row of the group that is stored together.
    __device__ __forceinline__ int64 group_row() const
    {
        return row - quad_row;
    }

    // Reads the sums; not of a group that is cut.
    __device__ __forceinline__ DqNumbers read() const
    {
        const float4 *const quarters = reinterpret_cast<const float4 *>(from);
        float4 x[4];  // numbers of lane 4 * quad_row + i; or element i of four lanes
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = __ldg(quarters + (kAddFour ? quad_row * 4 + i : i * 8 + quad_row));
        if constexpr (kAddFour)
            return {{x[0].x, x[0].y, x[1].x, x[1].y, x[2].x, x[2].y, x[3].x, x[3].y},
                    {x[0].z, x[0].w, x[1].z, x[1].w, x[2].z, x[2].w, x[3].z, x[3].w}};
        else
            return {{x[0].x, x[1].x, x[0].y, x[1].y, x[0].z, x[1].z, x[0].w, x[1].w},
                    {x[2].x, x[3].x, x[2].y, x[3].y, x[2].z, x[3].z, x[2].w, x[3].w}};
    }
};
