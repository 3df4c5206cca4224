#pragma once
#include "backward/cursor.cuh"
#include "hopper/bwd_products.cuh"

// ---- dQ = dS K by one warpgroup ------------------------------------------------------------------------------------
//
// Policy of bwd_dq_group.cuh; the other one is bwd_dq_columns.cuh. Each warp has 16 rows of a tile of dQ.

constexpr int kDqProducts = kColWarps;  // of a tile

// K as the right operand, in shared memory.
struct DqOperand {
    uint32 k_smem;

    __device__ __forceinline__ DqOperand(uint32 tile, int, int) : k_smem(tile) {}

    // Starts the product of a part, kDqColumns columns.
    __device__ __forceinline__ void start_dq(DqTile &dq, uint32 score_smem, int part) const
    {
        ::start_dq(dq, score_smem, k_smem + part * kDqColumnBytes);
    }
};

// Adds dQ of tiles to the sums.
struct DqSums {
    const BlockCoord &coord;
    int warp, lane;

    __device__ __forceinline__ DqSums(const Params &, const BlockCoord &coord, int warp, int lane)
        : coord(coord), warp(warp), lane(lane)
    {
    }

    // Adds a part of a tile.
    __device__ __forceinline__ void add(const Params &p, int64 batch_head, const Cursor &at, const DqTile &dq,
                                        int part) const
    {
        if constexpr (kVarlen)
            add_dq(dq_sums(p, coord, batch_head, at.tile, warp, part), dq, lane, p.seq_q - at.tile * kBr - warp * 16,
                   part);
        else
            add_dq(p.dq_sum + (batch_head * p.q_tiles + at.tile) * kDqTile + (warp * kColWarps + part) * kDqWarpPart,
                   dq, lane);
    }
};
