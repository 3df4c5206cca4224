#pragma once
#include "backward/epilogue.cuh"
#include "backward/split.cuh"

// ---- the kernel after the main one: sums the parts of dK and dV of a tile of keys (kSplit) -------------------
//
// Its entry point is in steps.cu.in.

// The kernel.
template <int kBlockThreads> __device__ __forceinline__ void combine(const Params &all)
{
    static_assert(kBlockThreads == kWriters, "a thread sums what one thread of each block wrote");
    extern __shared__ __align__(128) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const BlockCoord coord(all, blockIdx.x / 2);
    if (coord.is_empty())
        return;
    OwnParams p = coord.params(all);
    const int which = blockIdx.x % 2;
    float sum[kKeyTiles][2 * kOutPairs][4] = {};
#pragma unroll 1
    for (int split = 0; split < parts_of(p); split++) {
        const float4 *part = part_of(p, coord, split, which);
        each_of<kKeyTiles, 2 * kOutPairs>([&](int m, int n) {
            const float4 x = part[(m * 2 * kOutPairs + n) * kWriters];
            sum[m][n][0] += x.x, sum[m][n][1] += x.y, sum[m][n][2] += x.z, sum[m][n][3] += x.w;
        });
    }
    write_rows(which ? p.dv : p.dk, which ? p.dv_stride : p.dk_stride, p, coord, sum, which ? value_scale(p) : p.scale,
               smem, warp / kQueryWarps * 16 * kKeyTiles, warp % kQueryWarps, lane);
}
