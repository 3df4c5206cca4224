#pragma once
#include "backward/cursor.cuh"
#include "hopper/bwd_barriers.cuh"

// The empty policy: no warpgroup computes dQ alone (bwd_dq_group.cuh). Where warpgroups divide the products, compute_dq
// in bwd_by_product.cuh does it.
__device__ __forceinline__ void compute_dq_alone(const Params &, const BlockCoord &, const TileRange &, const Cursor &,
                                                 int, const Barriers &)
{
}
