#pragma once
#include "fp32/tf32_product.cuh"
#include "fp32/tile.cuh"
#include "lib/ptx.cuh"

// ---- products: three of TF32 for one of fp32; SM 8.0 and newer ------------------------------------------------------
//
// Policy; the other one is ffma.cuh. tf32_product.cuh has the product of S, and says how exact these are.

static_assert(kBc % 16 == 0, "ldmatrix reads 16 keys");

// O += P V of one tile. A lane has P of the keys 2 quad_lane and 2 quad_lane + 1 of eight, so these keys take the
// places of depth quad_lane and quad_lane + 4, in P and in V.
__device__ __forceinline__ void product_pv(OutputTile &o, const ScoreTile &p, uint32 v_smem, int lane)
{
    const uint32 values = v_smem + lane % 4 * 2 * kValuePitch + lane / 4 * 4;
#pragma unroll
    for (int step = 0; step < kColTiles; step++) {
        Split a[kRowTiles][4];
#pragma unroll
        for (int m = 0; m < kRowTiles; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = Split(__float_as_uint(p[m][step][i % 2 * 2 + i / 2]));
#pragma unroll
        for (int n = 0; n < kOutTiles; n++)
            multiply_rows<kRowTiles, kOutTiles, kValuePitch>(o, n, a, values + step * 8 * kValuePitch + n * 32);
    }
}
