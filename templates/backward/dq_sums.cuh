#pragma once
#include "backward/coord.cuh"
#include "lib/ptx.cuh"

// ---- dQ sums: fp32 sums over blocks, in the workspace -----------------------------------------------------------
//
// A tile of dQ is stored in the order of the fragments of the warps that add to it, so each addition of a warp fills
// whole sectors: [warp][m16 tile][n8 tile] of 128 numbers. These are [lane][4] if four numbers can be added at once,
// else [4][lane].
//
// Packed sequences share the workspace: each has exactly its own rows. The m16 tiles of a sequence are contiguous, [m16
// tile][column warp][n8 tile] of 128 numbers. An m16 tile that the sequence's end cuts is [row][column], with columns
// in the same order.
#if __CUDA_ARCH__ >= 900
constexpr bool kAddFour = true;
#else
constexpr bool kAddFour = false;
#endif
constexpr int kDqFragment = 128;
constexpr int kDqWarpPart = kDqRowTiles * kDqPairs * 2 * kDqFragment;
constexpr int kDqWidth = 16 * kDqPairs * kColWarps;  // numbers per row
constexpr int kDqTile = kBr * kDqWidth;
constexpr int kDqTileStep = kVarlen ? 2 * kDqPairs * kColWarps : 2 * kDqPairs;  // fragments from m16 tile to m16 tile

constexpr bool kDqDirect = false;  // sums are in the workspace

template <int kBlockThreads, int kBlockRows, int kLanes, class... Any>
__device__ __forceinline__ void clear_dq(const Any &...)
{
}

using DqTile = float[kDqPartTiles][2 * kDqPairs][4];

// Rows of the sums over all heads.
__device__ __forceinline__ int64 dq_rows(const Params &p, int64 all_rows)
{
    return kVarlen ? int64(p.heads_q) * p.features.total_q : all_rows;
}

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
