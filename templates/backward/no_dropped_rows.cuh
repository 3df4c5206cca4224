#pragma once
#include "features/params.cuh"

struct NoDroppedRows {
    __device__ __forceinline__ NoDroppedRows(const Params &, int, int, int, int) {}

    static __device__ __forceinline__ void begin(const Params &, int, int) {}

    static __device__ __forceinline__ float2 factors(int, int)
    {
        return {1.0f, 1.0f};
    }
};

using DroppedRows = NoDroppedRows;
