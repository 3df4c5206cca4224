#pragma once
#include "hopper/fwd_maps.cuh"
#include "hopper/wgmma.cuh"

// ---- epilogue: O of a warpgroup is normalised and written, with LSE ------------------------------------------------

// Normalises O and stores it by TMA, in pages of 64 columns; writes LSE.
__device__ __forceinline__ void write_rows_by_map(const Params &p, const BlockCoord &coord,
                                                  const float (&o)[kRowTiles][kOutTiles][4], const RowState &row,
                                                  uint32 smem, int warp_row, int lane, const TensorMap &map)
{
    if (lane == 0)
        wait_stores_read();
    __syncwarp();  // earlier stores have read these rows, and this warp's reads of Q are done
    const uint32 o_smem = smem + warp_row % kGroupRows * kPageRowBytes;
    normalise_rows(p, coord, o, row, warp_row, lane, [&](int r, int n) {
        return o_smem + n / 8 * kQPageBytes + r * kPageRowBytes + (n % 8 ^ r % 8) * 16;
    });
    fence_products();  // this lane's rows of O are seen by what stores them
    __syncwarp();
    if (lane == 0) {
#pragma unroll
        for (int page = 0; page < kPages; page++)
            store_page(map, o_smem + page * kQPageBytes, page * kPageColumns, coord.first_row + warp_row,
                       coord.query_head(p, 0), coord.batch);
        commit_stores();
    }
}
