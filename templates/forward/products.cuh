#pragma once
#include "forward/parts.cuh"
#include "lib/mma.cuh"
#include "lib/ptx.cuh"

// ---- the two products of a tile ---------------------------------------------------------------------
//
// O += P V is a policy: product_pv.cuh, or product_pv_fp16.cuh with fp16 sums.
//
// A step of the mainloop of fwd.cuh calls both. after_step(step) is called after the instructions of each k16 step, so
// the copies that it issues run while the tensor cores work. Warps that share rows take every kParts-th pair of chunks.

// S += Q K^T for one tile. q_frag is used if Q is in registers, else q_smem (this warp's rows).
template <class AfterStep>
__device__ __forceinline__ void product_qk(float (&s)[kRowTiles][kColTiles][4],
                                           const uint32 (&q_frag)[kRowTiles][kDepth][4], uint32 q_smem, uint32 k_smem,
                                           uint32 lane_rows, uint32 lane_cols, AfterStep after_step)
{
#pragma unroll
    for (int step = 0; step < kDepth; step++) {
        uint32 a[kRowTiles][4];
#pragma unroll
        for (int m = 0; m < kRowTiles; m++) {
            if constexpr (kQInRegisters) {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    a[m][e] = q_frag[m][step][e];
            } else {
                ldmatrix_x4(a[m], q_smem + pair_offset(lane_rows, step * kParts) + m * 16 * kPitch);
            }
        }
#pragma unroll
        for (int n = 0; n < kColTiles; n += 2) {
            uint32 b[4];  // columns n * 8 ... + 15: b[0], b[1] of the first n8 tile, b[2], b[3] of the next
            ldmatrix_x4(b, k_smem + pair_offset(lane_cols, step * kParts) + n * 8 * kPitch);
#pragma unroll
            for (int m = 0; m < kRowTiles; m++) {
                mma_k16(s[m][n], a[m], b[0], b[1]);
                mma_k16(s[m][n + 1], a[m], b[2], b[3]);
            }
        }
        after_step(step);
    }
}
