#pragma once
#include "hopper/fill_pages.cuh"
#include "hopper/fwd_group.cuh"

// Copies the Q of one warpgroup by its own threads: with kPackedHeads its rows belong to several heads.
__device__ __forceinline__ void copy_rows(const Params &p, const BlockCoord &coord, uint32 smem, int group)
{
    const int first_row = coord.first_row + group * kGroupRows;
    fill_pages<kGroupRows, 128>(smem, coord.rows - first_row,
                                [&](int r) { return p.q + coord.offset(p, p.q_stride, first_row + r) * kElemBytes; });
    cp_async_commit();
    cp_async_wait<0>();
    fence_products();
    named_barrier(1 + kGroups + group, 128);  // this warpgroup's rows of Q are complete
}
