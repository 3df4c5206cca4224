#pragma once
#include "forward/coord.cuh"
#include "forward/merge.cuh"
#include "forward/parts.cuh"
#include "forward/row_ends.cuh"

// ---- epilogue of O that is fp32 or merged: it is written from registers, with LSE ----------------------------------

template <class Row> __device__ __forceinline__ float sink_of(const Params &p, const BlockCoord &coord, const Row &row)
{
    if constexpr (kWgmma)
        return row.sink;
    else
        return sink_at(p, coord, 0);
}

// How a row ends: the factor of O, and LSE.
struct RowEnd {
    float inverse, lse;

    __device__ __forceinline__ RowEnd(const Params &p, const BlockCoord &coord, const RowState &row, int m, int h)
    {
        const float sum = quad_sum(row.sum[m][h]), divisor = divisor_of(row.max[m][h], sum, p.scale_log2);
        const float exponent = natural_exponent(row.max[m][h], p);
        if constexpr (kSinks) {
            const SinkEnd end(exponent, sum, divisor, sink_of(p, coord, row));
            inverse = end.inverse;
            lse = end.lse;
        } else {
            inverse = row_inverse(divisor);
            lse = row_lse(exponent, sum);
        }
        inverse *= kept_scale(p);
    }
};

// Reads the LSE in memory of this lane's rows, before a warp with the same rows overwrites it. One lane of a quad reads
// for all: it is the one that writes.
__device__ __forceinline__ void read_old(float (&old)[kRowTiles][2], const Params &p, const BlockCoord &coord,
                                         int first_row, int lane)
{
    each_of<kRowTiles, 2>([&](int m, int h) {
        const int block_row = first_row + m * 16 + h * 8;
        const bool reads = lane % 4 == 0 && block_row < coord.rows;
        old[m][h] = reads ? p.lse[coord.index(p, block_row)] : minus_infinity();
        old[m][h] = __shfl_sync(0xffffffffu, old[m][h], lane / 4 * 4);
    });
    if constexpr (kParts > 1)
        __syncthreads();  // several warps have columns of a row: their loads before the stores of LSE
}

// Tiles of columns that are read before any is written. The compiler moves no read before a write of the same memory,
// so each would wait for the latency of memory.
constexpr int kReadAtOnce = 8;

// Writes some columns of a row of O: n8 tiles from `first`. from: the row before.
__device__ __forceinline__ void write_columns(const Merge &merge, char *to, const char *from,
                                              const float (&o)[kOutTiles][4], int h, int first, float inverse, int lane)
{
    float2 before[kReadAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kReadAtOnce; i++)
        if (const int n = first + i; kMerges && n < kOutTiles && own_chunk(n) < kHeadDimV / 8)
            before[i] = merge.read<float2>(from + own_chunk(n) * 32 + lane % 4 * 8);
#pragma unroll
    for (int i = 0; i < kReadAtOnce; i++)
        if (const int n = first + i; n < kOutTiles && own_chunk(n) < kHeadDimV / 8)
            merge.put(to + own_chunk(n) * kChunkBytes + lane % 4 * 2 * kOutBytes, before[i],
                      float2{o[n][2 * h] * inverse, o[n][2 * h + 1] * inverse});
}

// Writes O and LSE from registers. In fp32 the four lanes of a quad fill a sector.
__device__ __forceinline__ void write_rows_from_registers(const Params &p, const BlockCoord &coord,
                                                          const float (&o)[kRowTiles][kOutTiles][4],
                                                          const RowState &row, int warp_row, int lane)
{
    const int first_row = coord.first_row + warp_row + lane / 4;
    float old[kRowTiles][2];
    if constexpr (kMerges)
        read_old(old, p, coord, first_row, lane);
    each_of<kRowTiles, 2>([&](int m, int h) {
        const RowEnd end(p, coord, row, m, h);
        const int block_row = first_row + m * 16 + h * 8;
        if (block_row >= coord.rows)
            return;
        const Merge merge(end.lse, kMerges ? old[m][h] : minus_infinity());
        char *const to = p.o + coord.offset(p, p.o_stride, block_row) * kOutBytes;
        const char *const from =
            old_row(p, to, [&](const Strides &stride) { return coord.offset(p, stride, block_row); });
#pragma unroll
        for (int first = 0; first < kOutTiles; first += kReadAtOnce)
            write_columns(merge, to, from, o[m], h, first, end.inverse, lane);
        if (p.lse != nullptr && lane % 4 == 0 && own_part() == 0)
            p.lse[coord.index(p, block_row)] = merge.lse;
    });
}
