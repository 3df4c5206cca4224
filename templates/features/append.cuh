#pragma once
#include "features/between.cuh"

// ---- append: new keys and values, which are written into the cache before attention -----------------------

// The keys that a sequence with room for so many has before its new ones come; padding counts among them.
__device__ __forceinline__ int keys_before(const Params &p, int batch, int room, int new_count)
{
    if constexpr (kSeqused)
        return between(0, __ldg(p.features.seqused_k + batch), room);
    else
        return max(0, room - new_count);
}
