#pragma once
#include "forward/epilogue_fp32.cuh"
#include "lib/mma.cuh"
#include "lib/tile.cuh"

// ---- epilogue: O of a block is normalised and written, with LSE -------------------------------------------------
//
// Called at the end of the kernels of fwd.cuh and hopper/fwd.cuh.

// Normalises O and writes it to shared memory; writes LSE. warp_row: the warp's first row in the block. address(r, n):
// the chunk of row r of the warp for column tile n.
template <class Address>
__device__ __forceinline__ void normalise_rows(const Params &p, const BlockCoord &coord,
                                               const float (&o)[kRowTiles][kOutTiles][4], const RowState &row,
                                               int warp_row, int lane, Address address)
{
    const int quad_row = lane / 4, quad_lane = lane % 4;
#pragma unroll
    for (int m = 0; m < kRowTiles; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float sum = quad_sum(row.sum[m][h]), divisor = divisor_of(row.max[m][h], sum, p.scale_log2);
            const float exponent = natural_exponent(row.max[m][h], p);
            float inverse, lse;
            if constexpr (kSinks) {
                const SinkEnd end(exponent, sum, divisor, sink_of(p, coord, row));
                inverse = end.inverse;
                lse = end.lse;
            } else {
                inverse = row_inverse(divisor);
            }
            inverse *= kept_scale(p);
            const int r = m * 16 + h * 8 + quad_row;
#pragma unroll
            for (int n = 0; n < kOutTiles; n++)
                store_shared_4(address(r, n) + quad_lane * 4,
                               pack2(o[m][n][2 * h] * inverse, o[m][n][2 * h + 1] * inverse));
            const int block_row = coord.first_row + warp_row + r;
            if (p.lse != nullptr && quad_lane == 0 && own_part() == 0 && block_row < coord.rows) {
                if constexpr (!kSinks)
                    lse = row_lse(exponent, sum);
                p.lse[coord.index(p, block_row)] = lse;
            }
        }
    }
}

// Writes O, 16 bytes per lane, through this warp's rows in shared memory. Form: the layout of rows of O there.
template <class Form>
__device__ __forceinline__ void write_rows(const Params &p, const BlockCoord &coord,
                                           const float (&o)[kRowTiles][kOutTiles][4], const RowState &row, uint32 smem,
                                           int warp_row, int lane)
{
    if constexpr (kPartial || kCarry) {
        write_rows_from_registers(p, coord, o, row, warp_row, lane);
        return;
    }
    if constexpr (kQInRegisters)
        __syncthreads();  // every warp has read its last K and V before O comes into their place
    else
        __syncwarp();  // the rows are this warp's own: its reads of Q before O comes into their place
    const uint32 o_smem = smem + (kQInRegisters ? 0 : kQArea) + warp_row * kPitch;
    constexpr int kWarpRows = 16 * kRowTiles;
    normalise_rows(p, coord, o, row, warp_row, lane,
                   [&](int r, int n) { return o_smem + Form::chunk_offset(r, own_chunk(n)); });
    if constexpr (kParts > 1)
        __syncthreads();  // several warps have columns of a row: their stores before the loads
    else
        __syncwarp();  // the rows are this warp's own: its stores before its loads

#pragma unroll
    for (int i = own_part() * 32 + lane; i < kWarpRows * Form::kChunks; i += kParts * 32) {
        const int r = i / Form::kChunks, chunk = i % Form::kChunks;  // includes padding: lanes read without gaps
        const int block_row = coord.first_row + warp_row + r;
        if (chunk < kHeadDimV / 8 && block_row < coord.rows)
            *reinterpret_cast<uint4 *>(p.o + coord.offset(p, p.o_stride, block_row) * kElemBytes + chunk * 16) =
                load_shared_16(o_smem + Form::chunk_offset(r, chunk));
    }
}
