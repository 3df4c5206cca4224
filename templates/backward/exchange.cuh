#pragma once
#include "backward/scores.cuh"
#include "backward/tile.cuh"

// ---- exchange of P^T and dS^T between warps, through shared memory --------------------------------------------

// Stores P^T for the warps with the same keys. smem: this lane's address.
__device__ __forceinline__ void store_p(const Fragments &a, uint32 smem)
{
    each_of<kQuerySteps, kKeyTiles>([&](int step, int m) {
        store_shared_16(smem + (step * kKeyTiles + m) * kFragmentBytes,
                        uint4{a[step][m][0], a[step][m][1], a[step][m][2], a[step][m][3]});
    });
}

// Stores dS^T into its tile.
__device__ __forceinline__ void store_ds(const Fragments &a, uint32 score_smem, int first_key, int first_query,
                                         int lane)
{
#pragma unroll
    for (int step = 0; step < kQuerySteps; step++)
        each_of<kKeyTiles, 4>([&](int m, int i) {
            store_shared_4(score_smem +
                               ScoreTile::chunk_offset(first_key + m * 16 + i % 2 * 8 + lane / 4,
                                                       first_query / 8 + 2 * step + i / 2) +
                               lane % 4 * 4,
                           a[step][m][i]);
        });
}
