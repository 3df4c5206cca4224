#pragma once
#include "forward/coord.cuh"

// Returns the head pointer of the rows of V that are loaded. Policy of kernels that load V as it is; the others have
// fp8_columns.cuh.
__device__ __forceinline__ const char *loaded_values(const Params &p, const BlockCoord &coord, int kv_head)
{
    return key_head(p.v, p.v_stride, coord, kv_head);
}
