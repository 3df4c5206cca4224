#pragma once
#include "backward/tile.cuh"

// ---- warp and lane coordinates, and addresses of the tiles ------------------------------------------------------

// The warp's part of S^T and dP^T, and of dQ.
struct WarpCoord {
    int lane, warp;
    int key_warp, query_warp;
    int row_warp, col_warp;
    int key;    // its first key in the block
    int query;  // and first query in a tile

    __device__ __forceinline__ WarpCoord()
        : lane(threadIdx.x % 32), warp(threadIdx.x / 32), key_warp(warp / kQueryWarps), query_warp(warp % kQueryWarps),
          row_warp(warp / kColWarps), col_warp(warp % kColWarps), key(key_warp * 16 * kKeyTiles),
          query(query_warp * kWarpQueries)
    {
    }
};

// This lane's ldmatrix offsets in tiles of Q and K, and of dO and V.
struct LaneOffsets {
    uint32 rows, cols, value_rows, value_cols;

    __device__ __forceinline__ explicit LaneOffsets(int lane)
        : rows(RowTile::lane_offset_rows(lane)), cols(RowTile::lane_offset_cols(lane)),
          value_rows(ValueTile::lane_offset_rows(lane)), value_cols(ValueTile::lane_offset_cols(lane))
    {
    }
};

// Addresses in shared memory for one tile of queries.
struct TileAreas {
    uint32 q, d_o;
    uint32 rows;            // LSE and delta, at this lane's first query
    uint32 scores;          // dS^T
    uint32 shared_p;        // P^T as fragments, of this lane
    uint32 out, value_out;  // this lane's ldmatrix addresses for its columns of dK and dV

    __device__ __forceinline__ TileAreas(uint32 smem, int stage, int score_stage, const WarpCoord &own,
                                         const LaneOffsets &offsets)
        : q(smem + kQArea + stage * kQTileBytes), d_o(smem + kDoArea + stage * kDoTileBytes),
          rows(smem + kRowArea + stage * kRowBytes + own.lane % 4 * 2 * 4),
          scores(smem + kScoreArea + score_stage * kScoreBytes),
          shared_p(smem + kSharedPArea + score_stage * kSharedPBytes + own.lane * 16),
          out(pair_offset(offsets.rows, own.query_warp)),
          value_out(ValueTile::pair_offset(offsets.value_rows, own.query_warp))
    {
    }
};
