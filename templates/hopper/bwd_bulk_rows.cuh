#pragma once
#include "backward/cursor.cuh"
#include "hopper/bwd_barriers.cuh"
#include "hopper/wgmma.cuh"
#include "hopper/dq_rows.cuh"

// ---- a part of dQ that the copy engine adds: to rows of the tensor (target=tensor) ----------------------------------
//
// Policy of bwd_dq_bulk.cuh; the other one is bwd_bulk_tile.cuh. The part lies in shared memory by rows, kDqPitch bytes
// apart, so that a quarter of the lanes, which has two rows, fills each bank once. A lane adds the row of its number.

// A warp's part of dQ of a tile: 16 rows, and some columns.
struct DqPart {
    float *sum;    // the row of this lane's number in the tensor; or null: there is none
    uint32 place;  // of the lane's numbers, in shared memory

    // Returns where the lane's numbers of a part begin.
    static __device__ __forceinline__ int lane_bytes()
    {
        return threadIdx.x % 32 / 4 * kDqPitch + threadIdx.x % 4 * 8;
    }

    // Returns the number of a warp's part in a tile.
    static __device__ __forceinline__ int number(int, int warp)
    {
        return warp;
    }

    __device__ __forceinline__ void find(const Params &p, const BlockCoord &coord, const Cursor &at, int group,
                                         int warp)
    {
        const int64 batch_head = int64(coord.batch) * p.heads_q + coord.kv_head * p.group + at.head;
        const int lane = threadIdx.x % 32, row = (group / kColWarps * 4 + warp % 4) * 16 + lane;
        const bool is_there = lane < 16 && at.tile * kBr + row < p.seq_q;
        sum = is_there ? dq_tile(p, coord, batch_head, at.tile) + row * p.dq_stride.seq + group % kColWarps * kDqColumns
                       : nullptr;
    }

    // Puts the part into shared memory.
    __device__ __forceinline__ void put(const Params &p, const Barriers &, uint32, const DqTile &dq, int) const
    {
        static_assert(!kAddsApart, "one thread would add all rows of a tile");
        if (p.dq == nullptr)
            return;
        wait_stores();  // this lane's row of the part before is read
        __syncwarp();
        const float scale = p.scale;
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int n = 0; n < 2 * kDqPairs; n++)
                store_shared_8(place + h * 8 * kDqPitch + n * 32, dq[0][n][2 * h] * scale, dq[0][n][2 * h + 1] * scale);
    }

    // Lets the copy engine add it.
    __device__ __forceinline__ void add(const Params &p, const Barriers &, int lane) const
    {
        if (p.dq == nullptr)
            return;
        fence_products();
        __syncwarp();  // the part is there
        if (sum != nullptr) {
            const int left = kHeadDim - threadIdx.x / 128 % kColWarps * kDqColumns;  // columns from the part's first on
            add_bytes(sum, place - lane_bytes() + lane * kDqPitch, min(left, kDqColumns) * 4);
            commit_stores();
        }
    }
};
