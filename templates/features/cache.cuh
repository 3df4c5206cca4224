#pragma once
#include "features/params.cuh"

// ---- cache rows: which row of K and V a sequence has -----------------------------------------------------
//
// A number that is no row's counts as the last one's.

__device__ __forceinline__ int cache_row_of(const Params &p, int batch)
{
    return min(uint32(__ldg(p.features.cache_rows + batch)), p.features.cache_row_count - 1u);
}
