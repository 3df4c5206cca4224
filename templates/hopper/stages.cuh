#pragma once
#include "lib/types.cuh"

// ---- a ring of stages in shared memory -------------------------------------------------------------------------
//
// The phase of a stage's mbarrier ends once per tile, so the parity to wait for flips at each round.

// A position in a ring of kCount stages.
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
