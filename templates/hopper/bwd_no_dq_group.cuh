#pragma once
#include "backward/cursor.cuh"
#include "hopper/bwd_barriers.cuh"

// The empty policy: no warpgroup computes dQ alone (bwd_dq_group.cuh), or it is one of those that divide the products.
__device__ __forceinline__ void compute_dq_alone(const Params &, const BlockCoord &, const TileRange &, const Cursor &,
                                                 int, const Barriers &)
{
}
