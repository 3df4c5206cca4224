#pragma once
#include "features/between.cuh"

// ---- append: new keys and values are written into the cache before attention -------------------------------

// Returns the number of keys that a sequence has before its new ones, padding included. room: rows of the cache for the
// sequence.
__device__ __forceinline__ int keys_before(const Params &p, int batch, int room, int new_count)
{
    if constexpr (kSeqused)
        return between(0, __ldg(p.features.seqused_k + batch), room);
    else
        return max(0, room - new_count);
}
