#pragma once
#include "features/bias.cuh"

// ---- sinks: one column more, without a value ------------------------------------------------------------

// How a row ends whose columns gave this maximum, of scores times scale, and this sum, 0 if no key was visible: what O
// is multiplied by, and LSE. sink may be -infinity.
struct SinkEnd {
    float inverse, lse;

    __device__ __forceinline__ SinkEnd(float max, float sum, float sink)
    {
        // The sink may be below the least score.
        const float most = kBiasNumbers && sum == 0.0f ? sink : fmaxf(max, sink);
        const float weight = sum == 0.0f ? 0.0f : expf(max - most);
        const float all = weight * sum + (sink == minus_infinity() ? 0.0f : expf(sink - most));
        inverse = all == 0.0f ? 0.0f : weight / all;
        lse = all == 0.0f ? minus_infinity() : most + logf(all);
    }
};
