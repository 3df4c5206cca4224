#pragma once
#include "lib/types.cuh"

// Where a thread's eight bytes of row r of rounded K go (quantise.cuh), in a tile whose rows follow each other.
__device__ __forceinline__ uint2 *key_place(uint2 *tile, int r, int parcel, int parcels)
{
    return tile + parcel + r * parcels;
}
