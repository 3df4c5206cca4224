#pragma once
#include "backward/clear_dq.cuh"
#include "lib/ptx.cuh"

// ---- dQ sums: blocks add to the tensor itself, which is fp32 (target=tensor) ----------------------------------------
//
// Policy; the other ones are backward/dq_sums.cuh and fp32/dq_sums.cuh. No kernel converts sums, and with kMerges none
// sets them to 0: what is in memory is one more sum. Each part is scaled before it is added. The workspace has no sums,
// so the counters of dq_order.cuh are where sums would begin.
constexpr bool kDqDirect = true;
constexpr int kDqWidth = 0, kDqTile = 0;  // numbers in the workspace, per row and per tile

using DqTile = float[kDqPartTiles][2 * kDqPairs][4];

// Rows of the sums over all heads.
__device__ __forceinline__ int64 dq_rows(const Params &, int64)
{
    return 0;
}

// Returns the address of a tile of queries in a head of the block.
template <class Coord>
__device__ __forceinline__ float *dq_tile(const Params &p, const Coord &coord, int64 batch_head, int tile)
{
    const int64 head = batch_head - int64(coord.batch) * p.heads_q;
    return reinterpret_cast<float *>(p.dq) + coord.batch * p.dq_stride.batch + head * p.dq_stride.head +
           tile * kBr * p.dq_stride.seq;
}

// Adds a warp's m16 tile: the four lanes of a quad fill a sector. to: what dq_tile returned; first: number of the m16
// tile in the tile of queries; part: of the columns.
template <class Coord>
__device__ __forceinline__ void add_dq_part(float *to, const Params &p, const Coord &, int64, int tile,
                                            const DqTile &dq, int first, int part, int lane)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = first * 16 + h * 8 + lane / 4;
        if (tile * kBr + row >= p.seq_q)
            continue;
        float *const own = to + row * p.dq_stride.seq + part * kDqColumns + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < 2 * kDqPairs; n++)
            if (part * kDqColumns + n * 8 < kHeadDim)
                add_global_8(own + n * 8, dq[0][n][2 * h] * p.scale, dq[0][n][2 * h + 1] * p.scale);
    }
}
