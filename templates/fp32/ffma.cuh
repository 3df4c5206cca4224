#pragma once
#include "fp32/tile.cuh"
#include "lib/ptx.cuh"

// ---- products by FMA instructions; every SM -------------------------------------------------------------------------
//
// Policy; the other one is tf32.cuh. A lane computes the elements that it has of an accumulator of m16n8 (softmax.cuh).
// The four lanes of a quad have the same rows, and the eight lanes of a column have the same keys, so shared memory
// sends each of their numbers once.

// S += Q K^T of one tile, four columns of Q and K at a time. q_smem: this warp's rows.
__device__ __forceinline__ void product_qk(ScoreTile &s, uint32 q_smem, uint32 k_smem, int lane)
{
    const uint32 rows = q_smem + lane / 4 * kPitch, keys = k_smem + lane % 4 * 2 * kPitch;
#pragma unroll 2
    for (int step = 0; step < kHeadDim / 4; step++) {
        float4 q[2 * kRowTiles];
#pragma unroll
        for (int r = 0; r < 2 * kRowTiles; r++)
            q[r] = load_shared_floats(rows + r * 8 * kPitch + step * 16);
#pragma unroll
        for (int n = 0; n < 2 * kColTiles; n++) {
            const float4 k = load_shared_floats(keys + (n / 2 * 8 + n % 2) * kPitch + step * 16);
#pragma unroll
            for (int r = 0; r < 2 * kRowTiles; r++) {
                float &sum = s[r / 2][n / 2][r % 2 * 2 + n % 2];
                sum = fmaf(q[r].x, k.x, sum);
                sum = fmaf(q[r].y, k.y, sum);
                sum = fmaf(q[r].z, k.z, sum);
                sum = fmaf(q[r].w, k.w, sum);
            }
        }
    }
}

// O += P V of one tile. The lanes of a quad send each other P of their keys.
__device__ __forceinline__ void product_pv(OutputTile &o, const ScoreTile &p, uint32 v_smem, int lane)
{
    const uint32 values = v_smem + lane % 4 * 8;
#pragma unroll
    for (int part = 0; part < kColTiles * 2; part++)  // column tile part / 2, and an element of it
#pragma unroll 1
        for (int of = 0; of < 4; of++) {  // the lane that has P
            float weight[2 * kRowTiles];
#pragma unroll
            for (int r = 0; r < 2 * kRowTiles; r++)
                weight[r] = __shfl_sync(0xffffffffu, p[r / 2][part / 2][r % 2 * 2 + part % 2], lane / 4 * 4 + of);
            const uint32 key = values + (part / 2 * 8 + of * 2 + part % 2) * kValuePitch;
#pragma unroll
            for (int n = 0; n < kOutTiles; n++) {
                const float2 v = load_shared_8(key + n * 32);
#pragma unroll
                for (int r = 0; r < 2 * kRowTiles; r++) {
                    float(&sum)[4] = o[r / 2][n];
                    sum[r % 2 * 2] = fmaf(weight[r], v.x, sum[r % 2 * 2]);
                    sum[r % 2 * 2 + 1] = fmaf(weight[r], v.y, sum[r % 2 * 2 + 1]);
                }
            }
        }
}
