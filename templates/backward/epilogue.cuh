#pragma once
#include "backward/coord.cuh"
#include "backward/gradient.cuh"
#include "backward/writers.cuh"
#include "lib/mma.cuh"
#include "lib/tile.cuh"

// ---- epilogue: writes dK and dV of a block ------------------------------------------------------------------------
//
// Called at the end of the kernels of bwd.cuh, hopper/bwd.cuh and hopper/bwd_by_product.cuh.

// Scales rows of dK or dV and writes them, 16 bytes per lane, through shared memory, which must be free. Form: layout
// of the rows there; kColumns: columns of the tensor.
template <class Form = RowTile, int kColumns = kHeadDim, int kTiles>
__device__ __forceinline__ void write_rows(char *out, const Strides &stride, const Params &p, const BlockCoord &coord,
                                           const float (&x)[kKeyTiles][kTiles][4], float scale, uint32 smem,
                                           int warp_key, int query_warp, int lane)
{
    if (out == nullptr)
        return;
    if constexpr (kPartial) {
        const int64 head = coord.batch * stride.batch + coord.kv_head * stride.head;
#pragma unroll
        for (int m = 0; m < kKeyTiles; m++)
            put_fp32_tile<kColumns>(out, head, stride, coord.first_key + warp_key + m * 16, p.seq_k, x[m], scale, lane,
                                    [&](int n) { return (n / 2 * kQueryWarps + query_warp) * 2 + n % 2; });
        return;
    }
#pragma unroll
    for (int m = 0; m < kKeyTiles; m++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int n = 0; n < kTiles; n++) {
                const int chunk = (n / 2 * kQueryWarps + query_warp) * 2 + n % 2;
                store_shared_4(smem + Form::chunk_offset(warp_key + m * 16 + h * 8 + lane / 4, chunk) + lane % 4 * 4,
                               pack2(x[m][n][2 * h] * scale, x[m][n][2 * h + 1] * scale));
            }
    writers_meet();  // the rows are complete: several warps wrote parts of each

    out += (coord.batch * stride.batch + coord.kv_head * stride.head + coord.first_key * stride.seq) * kElemBytes;
#pragma unroll
    for (int i = writer(); i < kBc * Form::kChunks; i += kWriters) {
        const int r = i / Form::kChunks, chunk = i % Form::kChunks;  // includes padding: lanes read without gaps
        if (chunk < kColumns / 8 && coord.first_key + r < p.seq_k)
            *reinterpret_cast<uint4 *>(out + r * stride.seq * kElemBytes + chunk * 16) =
                load_shared_16(smem + Form::chunk_offset(r, chunk));
    }
}
