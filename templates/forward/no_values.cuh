#pragma once
#include "forward/coord.cuh"

// The empty policy of quantise.cuh: V stays as it is.
__device__ __forceinline__ void round_values(const Params &, const SequenceCoord &, int, int, int64) {}

// Where a thread's eight bytes of row r go, in a tile whose rows follow each other.
__device__ __forceinline__ uint2 *key_place(uint2 *tile, int r, int parcel, int parcels)
{
    return tile + parcel + r * parcels;
}
