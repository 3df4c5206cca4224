#pragma once
#include "features/params.cuh"

// ---- cache rows: which row of the K/V cache a sequence uses ---------------------------------------------
//
// An invalid row number counts as the last row.

__device__ __forceinline__ int cache_row_of(const Params &p, int batch)
{
    return min(uint32(__ldg(p.features.cache_rows + batch)), p.features.cache_row_count - 1u);
}
