#pragma once
#include "features/params.cuh"

// ---- sinks: one more column in the softmax, without a value ---------------------------------------------------

// Returns the sink of a head. A kernel without sinks lacks the parameter: templates look it up later.
template <class P> __device__ __forceinline__ float sink_of_head(const P &p, int head)
{
    return p.features.sinks[head];
}

// Returns the sink of a row's head. row: of the block.
template <class P, class Coord> __device__ __forceinline__ float sink_at(const P &p, const Coord &coord, int row)
{
    return p.features.sinks[coord.query_head(p, row)];
}

// Ends a row with a sink: gives the factor of O, and LSE. exponent: of the sum, in the unit of the sink; sum: of
// the row, 0 if it saw no key; divisor: the sum by which O is divided. sink may be -infinity.
struct SinkEnd {
    float inverse, lse;

    __device__ __forceinline__ SinkEnd(float exponent, float sum, float divisor, float sink)
    {
        // The sink may be below the least score.
        const float most = kBiasNumbers && sum == 0.0f ? sink : fmaxf(exponent, sink);
        const float weight = sum == 0.0f ? 0.0f : expf(exponent - most);
        const float own = sink == minus_infinity() ? 0.0f : expf(sink - most), all = weight * sum + own;
        inverse = all == 0.0f ? 0.0f : weight / (weight * divisor + own);
        lse = all == 0.0f ? minus_infinity() : most + logf(all);
    }
};
