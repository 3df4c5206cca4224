#pragma once
#include "backward/dq_sums.cuh"
#include "backward/gradient.cuh"
#include "lib/mma.cuh"

// ---- the kernel after the main one: converts dQ from fp32 sums ------------------------------------------------
//
// Its entry point is in steps.cu.in. A thread has 8 columns of two rows; SummedPart knows where their sums are
// (dq_fragments.cuh, or hopper/dq_columns.cuh).

constexpr int kConvertParts = kConvertRows * kDqWidth / 16;  // parts of 16 numbers
constexpr int kConvertThreads = kConvertParts > 256 ? 256 : kConvertParts;
static_assert(kBr % kConvertRows == 0, "tiles are whole blocks");

// Both rows of a part, as elements.
struct ElementRows {
    uint4 upper, lower;

    __device__ __forceinline__ ElementRows(const DqNumbers &x, float scale)
    {
        upper = {pack2(x.upper[0] * scale, x.upper[1] * scale), pack2(x.upper[2] * scale, x.upper[3] * scale),
                 pack2(x.upper[4] * scale, x.upper[5] * scale), pack2(x.upper[6] * scale, x.upper[7] * scale)};
        lower = {pack2(x.lower[0] * scale, x.lower[1] * scale), pack2(x.lower[2] * scale, x.lower[3] * scale),
                 pack2(x.lower[4] * scale, x.lower[5] * scale), pack2(x.lower[6] * scale, x.lower[7] * scale)};
    }

    // Writes both rows. p: parameters of the sequence alone; to: address of the upper row; row: its index.
    __device__ __forceinline__ void write(const Params &p, char *to, int64 row) const
    {
        if (row < p.seq_q)
            *reinterpret_cast<uint4 *>(to) = upper;
        if (row + SummedPart::kRowsApart < p.seq_q)
            *reinterpret_cast<uint4 *>(to + SummedPart::kRowsApart * p.dq_stride.seq * kElemBytes) = lower;
    }
};

// The same in fp32.
struct Fp32Rows {
    Fp32Chunk upper, lower;

    __device__ __forceinline__ Fp32Rows(const DqNumbers &x, float scale)
    {
        upper = {{x.upper[0] * scale, x.upper[1] * scale, x.upper[2] * scale, x.upper[3] * scale},
                 {x.upper[4] * scale, x.upper[5] * scale, x.upper[6] * scale, x.upper[7] * scale}};
        lower = {{x.lower[0] * scale, x.lower[1] * scale, x.lower[2] * scale, x.lower[3] * scale},
                 {x.lower[4] * scale, x.lower[5] * scale, x.lower[6] * scale, x.lower[7] * scale}};
    }

    __device__ __forceinline__ void write(const Params &p, char *to, int64 row)
    {
        char *const to_lower = to + SummedPart::kRowsApart * p.dq_stride.seq * 4;
        if (row < p.seq_q)
            upper.add_old(to);
        if (row + SummedPart::kRowsApart < p.seq_q)
            lower.add_old(to_lower);
        if (row < p.seq_q)
            upper.write(to);
        if (row + SummedPart::kRowsApart < p.seq_q)
            lower.write(to_lower);
    }
};
using ConvertedRows = Either<kPartial, Fp32Rows, ElementRows>::Type;

__device__ __forceinline__ void convert_batches(const Params &p)
{
    constexpr int kSlices = kBr / kConvertRows;  // blocks per tile; they divide its parts, not its rows
    const int64 tile = blockIdx.x / kSlices;
    const int64 batch_head = tile / p.q_tiles;
    const int head = batch_head % p.heads_q;
    const int64 batch = batch_head / p.heads_q;
    const float *from_tile = p.dq_sum + tile * kDqTile;
    char *out = p.dq + (batch * p.dq_stride.batch + head * p.dq_stride.head) * kOutBytes;
    const float scale = p.scale;

#pragma unroll
    for (int i = threadIdx.x; i < kConvertParts; i += kConvertThreads) {
        const SummedPart part(blockIdx.x % kSlices * kConvertParts + i, from_tile, tile % p.q_tiles * kBr);
        if (part.chunk >= kHeadDim / 8)
            continue;
        ConvertedRows rows(part.read(), scale);
        rows.write(p, out + part.row * p.dq_stride.seq * kOutBytes + part.chunk * kChunkBytes, part.row);
    }
}

// The kernel.
template <int kBlockThreads, class AnyParams> __device__ __forceinline__ void convert(const AnyParams &p)
{
    static_assert(kBlockThreads == kConvertThreads, "the block has the threads that divide its parts");
    if constexpr (kVarlen)
        convert_packed(p);
    else
        convert_batches(p);
}
