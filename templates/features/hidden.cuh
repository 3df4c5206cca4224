#pragma once
#include "features/bias.cuh"

// Numbers that are added to scores may hide keys: -infinity, -1e9 and their like. A row's maximum begins with the least
// score that counts, and does not fall below: P of hidden keys is 0 then, also where a row has no others (fa2.h).
// Scores so far from 0 still tell keys apart, to 1/16.
constexpr float kLeastScore = -0x1p19f;  // scaled, with all that is added

// The maximum of a row that has seen no key, in the units of q k.
__device__ __forceinline__ float least_maximum(const Params &p)
{
    if constexpr (kBiasNumbers)
        return kLeastScore * p.features.inverse_scale;
    else
        return minus_infinity();
}
