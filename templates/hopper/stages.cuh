#pragma once
#include "lib/types.cuh"

// ---- places of tiles in shared memory, filled in turn ----------------------------------------------------------
//
// A barrier's phase of a stage ends once for each tile that comes there, so its parity changes from round to round.

// Counts tiles through so many stages.
template <int kCount> struct StageOf {
    int index = 0;
    uint32 parity = 0;

    __device__ __forceinline__ void advance()
    {
        index++;
        if (index == kCount) {
            index = 0;
            parity ^= 1;
        }
    }

    __device__ __forceinline__ StageOf before() const
    {
        StageOf other;
        other.index = (index == 0 ? kCount : index) - 1;
        other.parity = index == 0 ? parity ^ 1 : parity;
        return other;
    }
};
using Stage = StageOf<kStages>;
