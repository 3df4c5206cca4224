#pragma once
#include "backward/scores.cuh"
#include "lib/mma.cuh"

// Packs two neighbouring accumulator tiles, which have the layout of one 16x16 A fragment.
__device__ __forceinline__ void pack_fragment(uint32 (&a)[4], const float (&left)[4], const float (&right)[4])
{
    a[0] = pack2(left[0], left[1]);
    a[1] = pack2(left[2], left[3]);
    a[2] = pack2(right[0], right[1]);
    a[3] = pack2(right[2], right[3]);
}

using Fragments = uint32[kQuerySteps][kKeyTiles][4];  // A fragments of dV and dK

__device__ __forceinline__ void pack_scores(Fragments &a, const Scores &s)
{
    each_of<kQuerySteps, kKeyTiles>(
        [&](int step, int m) { pack_fragment(a[step][m], s[m][2 * step], s[m][2 * step + 1]); });
}
