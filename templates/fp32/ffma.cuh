#pragma once
#include "fp32/ffma_product.cuh"
#include "fp32/tile.cuh"

// ---- products by FMA instructions; every SM -------------------------------------------------------------------------
//
// Policy; the other one is tf32.cuh. The product of S is in ffma_product.cuh.

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
