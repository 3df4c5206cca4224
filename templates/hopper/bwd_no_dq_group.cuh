#pragma once

// The empty policy: no warpgroup computes dQ alone (bwd_dq_group.cuh). Where warpgroups divide the products, compute_dq
// in bwd_by_product.cuh does it.
template <class... Any> __device__ __forceinline__ void compute_dq_alone(const Any &...) {}
