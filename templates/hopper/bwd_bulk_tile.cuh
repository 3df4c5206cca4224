#pragma once
#include "backward/cursor.cuh"
#include "backward/dq_sums.cuh"
#include "hopper/bwd_barriers.cuh"
#include "hopper/wgmma.cuh"

// ---- a part of dQ that the copy engine adds: to sums in the workspace, which are in the order of fragments ---------
//
// Policy of bwd_dq_bulk.cuh; the other one is bwd_bulk_rows.cuh.

// A warp's part of dQ of a tile: 16 rows, and some columns.
struct DqPart {
    float *sum;    // its sums in memory
    int rows;      // with packed sequences, rows from its first to the sequence's end
    int columns;   // number of the part in a row
    uint32 place;  // of the lane, in shared memory

    // Packed sequences: a part that the sequence's end cuts is laid out in another way, and the warp adds it.
    __device__ __forceinline__ bool is_cut() const
    {
        return kVarlen && rows < 16;
    }

    // Returns where the lane's numbers of a part begin.
    static __device__ __forceinline__ int lane_bytes()
    {
        return threadIdx.x % 32 * 16;
    }

    // Returns the number of a warp's part in a tile of the sums.
    static __device__ __forceinline__ int number(int group, int warp)
    {
        return (group / kColWarps * 4 + warp % 4) * kColWarps + group % kColWarps;
    }

    __device__ __forceinline__ void find(const Params &p, const BlockCoord &coord, const Cursor &at, int group,
                                         int warp)
    {
        const int64 batch_head = int64(coord.batch) * p.heads_q + coord.kv_head * p.group + at.head;
        const int m = group / kColWarps * 4 + warp % 4;
        columns = group % kColWarps;
        rows = p.seq_q - at.tile * kBr - m * 16;
        if constexpr (kVarlen)
            sum = dq_sums(p, coord, batch_head, at.tile, m, columns);
        else
            sum = p.dq_sum + (batch_head * p.q_tiles + at.tile) * kDqTile + number(group, warp) * kDqWarpPart;
    }

    // Puts the part into shared memory. parity: of the tile's number in the block.
    __device__ __forceinline__ void put(const Params &p, const Barriers &barriers, uint32 parity, const DqTile &dq,
                                        int lane) const
    {
        if (p.dq == nullptr)
            return;
        if (is_cut()) {
            add_dq(sum, dq, lane, rows, columns);
            return;
        }
        if constexpr (kAddsApart) {
            barrier_wait(barriers.dq_empty(), parity ^ 1);
        } else {
            if (lane == 0)
                wait_stores();  // the part before is read
            __syncwarp();
        }
#pragma unroll
        for (int n = 0; n < 2 * kDqPairs; n++)
            store_shared_floats(place + n * kDqFragment * 4, dq[0][n]);
    }

    // Lets the copy engine add it, or the thread that does so for all warps.
    __device__ __forceinline__ void add(const Params &p, const Barriers &barriers, int lane) const
    {
        if (p.dq == nullptr || is_cut())
            return;
        fence_products();
        __syncwarp();  // the part is there
        if constexpr (kAddsApart) {
            barrier_arrive_by(lane, barriers.dq_full());
        } else if (lane == 0) {
            add_bytes(sum, place, kDqPartBytes);
            commit_stores();
        }
    }
};
