#pragma once
#include "backward/cursor.cuh"
#include "hopper/bwd_products.cuh"

// ---- dQ^T = K^T dS^T by one warpgroup ------------------------------------------------------------------------------
//
// Policy of bwd_dq_group.cuh; the other one is bwd_dq_rows.cuh. Each warp has 16 columns of a tile of dQ, and of K in
// registers. So the tensor cores read dS^T alone from shared memory, half as much as for dQ = dS K.
//
// The warpgroup has 72 registers (kDqRegisters). ptxas leaves the first 24 to the threads, and 44 to products. With all
// 64 queries in a product, three steps of K^T would have room; with 32 at a time, seven of eight have.

constexpr int kDqHeldSteps = 7;                // k16 steps of K^T in registers
constexpr int kDqProducts = kBr / kDqQueries;  // of a tile
static_assert(kDqHeldSteps <= kBc / 16 && kBr % kDqQueries == 0, "steps of K, and whole products");

// K^T as the left operand: its first steps in registers, the others in shared memory.
struct DqOperand {
    uint32 k_smem;
    uint32 fragments[kDqHeldSteps][4];

    __device__ __forceinline__ DqOperand(uint32 tile, int warp, int lane) : k_smem(tile)
    {
        const uint32 place =
            tile + TileForm<kPageColumns>::chunk_offset(lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2);
#pragma unroll
        for (int step = 0; step < kDqHeldSteps; step++)
            ldmatrix_x4_trans(fragments[step], place + step * 16 * kPageRowBytes);
    }

    // Starts the product of a part, kDqQueries queries.
    __device__ __forceinline__ void start_dq(DqTile &dq, uint32 score_smem, int part) const
    {
        const uint64 a = tile_descriptor(k_smem, 0);
        const uint64 b = tile_descriptor(score_smem + part * kDqQueries * kElemBytes, 0);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kBc / 16; step++) {
            const int offset = step * 16 * kPageRowBytes / 16;
            if (step < kDqHeldSteps)
                Wgmma<kDqQueries>::template multiply<1>(dq, fragments[step], b + offset, step > 0);
            else
                Wgmma<kDqQueries>::template multiply<1, 1>(dq, a + offset, b + offset, step > 0);
        }
        wgmma_commit();
    }
};

// Adds to 8 queries of which fewer exist. sum: address of the first one.
__device__ __forceinline__ void add_cut_rows(float *sum, const float (&dq)[4], int rows, int warp, int lane)
{
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int row = lane % 4 * 2 + e % 2;
        if (row < rows)
            add_global_4(sum + row * kDqWidth + warp * 16 + lane / 4 + e / 2 * 8, dq[e]);
    }
}

// Adds dQ of tiles to the sums.
struct DqSums {
    float *first;  // the lane's place in the first tile of the block's first head of queries
    int warp, lane;

    template <class Coord>
    __device__ __forceinline__ DqSums(const Params &p, const Coord &coord, int warp, int lane) : warp(warp), lane(lane)
    {
        const int64 head = int64(coord.batch) * p.heads_q + coord.kv_head * p.group;
        int64 row;
        if constexpr (kVarlen)
            row = head * p.features.total_q + coord.own.sequence.first_q;
        else
            row = head * p.q_tiles * kBr;
        first = p.dq_sum + row * kDqWidth + warp * kDqFragment + lane * 4;
    }

    // Adds a part of a tile.
    __device__ __forceinline__ void add(const Params &p, int64, const Cursor &at, const DqTile &dq, int part) const
    {
        float *sum;
        if constexpr (kVarlen)
            sum = first + (int64(at.head) * p.features.total_q + at.tile * kBr) * kDqWidth;
        else
            sum = first + int64(at.head * p.q_tiles + at.tile) * kDqTile;
        sum += part * kDqQueries * kDqWidth;
        const int rows = p.seq_q - at.tile * kBr - part * kDqQueries;
#pragma unroll
        for (int n = 0; n < kDqQueries / 8; n++) {
            float *const fragment = sum + n * kDqGroupRows * kDqWidth;
            if (kVarlen && rows - n * kDqGroupRows < kDqGroupRows)
                add_cut_rows(fragment - warp * kDqFragment - lane * 4, dq[0][n], rows - n * kDqGroupRows, warp, lane);
            else
                add_global_16(fragment, dq[0][n]);
        }
    }
};
