#pragma once
#include "features/limits.def"
#include "features/params.cuh"

// A bias may hide keys by numbers such as -infinity or -1e9. The maximum of a row begins with the least score that
// counts, and never falls below it. So P of hidden keys is 0, even in a row without other keys (fa2.h). Scores near
// this limit are still precise to 1/16.
constexpr float kLeastScore = FA2I_LEAST_SCORE;

// The maximum of a row that has seen no key, in the unit of Q K^T.
__device__ __forceinline__ float least_maximum(const Params &p)
{
    if constexpr (kBiasNumbers)
        return kLeastScore * p.features.inverse_scale;
    else
        return minus_infinity();
}
