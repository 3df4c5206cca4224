#pragma once
#include "forward/parts.cuh"

// ---- sum of S over warps that divide columns (kParts) --------------------------------------------------------
constexpr int kWarpSumBytes = kRowTiles * kColTiles * 32 * 16;  // [row tile][column tile][lane]
static_assert(kSumArea + kWarps * kWarpSumBytes == kTileBytes, "each warp has a place for its S");

// Where a lane puts its part of a column tile of S, in the area of warp `part` of the same rows.
__device__ __forceinline__ uint32 sum_place(uint32 smem, int part, int m, int n)
{
    const int warp = threadIdx.x / 32 / kParts * kParts + part;
    return smem + kSumArea + warp * kWarpSumBytes + ((m * kColTiles + n) * 32 + threadIdx.x % 32) * 16;
}

__device__ __forceinline__ void put_scores(uint32 smem, const float (&s)[kRowTiles][kColTiles][4])
{
    each_of<kRowTiles, kColTiles>([&](int m, int n) {
        store_shared_16(sum_place(smem, own_part(), m, n),
                        uint4{__float_as_uint(s[m][n][0]), __float_as_uint(s[m][n][1]), __float_as_uint(s[m][n][2]),
                              __float_as_uint(s[m][n][3])});
    });
}

// Sums S over all parts. A barrier must come after put_scores.
__device__ __forceinline__ void add_scores(uint32 smem, float (&s)[kRowTiles][kColTiles][4])
{
    const int part = own_part();
    each_of<kRowTiles, kColTiles>([&](int m, int n) {
        const float4 x = load_shared_floats(sum_place(smem, part ^ 1, m, n));
        s[m][n][0] += x.x;
        s[m][n][1] += x.y;
        s[m][n][2] += x.z;
        s[m][n][3] += x.w;
        if constexpr (kParts == 4) {
            const float4 y = load_shared_floats(sum_place(smem, part ^ 2, m, n));
            const float4 z = load_shared_floats(sum_place(smem, part ^ 3, m, n));
            s[m][n][0] += y.x + z.x;
            s[m][n][1] += y.y + z.y;
            s[m][n][2] += y.z + z.z;
            s[m][n][3] += y.w + z.w;
        }
    });
}
