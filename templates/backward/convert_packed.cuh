#pragma once
#include "backward/convert.cuh"

// ---- the conversion of dQ of packed sequences -----------------------------------------------------------------------

// Eight columns of a row, of rows that the sequence's end cuts.
struct ElementCut {
    uint4 numbers;

    __device__ __forceinline__ ElementCut(const float4 &x, const float4 &y, float scale)
        : numbers{pack2(x.x * scale, x.y * scale), pack2(x.z * scale, x.w * scale), pack2(y.x * scale, y.y * scale),
                  pack2(y.z * scale, y.w * scale)}
    {
    }

    __device__ __forceinline__ void write(char *to) const
    {
        *reinterpret_cast<uint4 *>(to) = numbers;
    }
};

// The same in fp32.
struct Fp32Cut {
    Fp32Chunk numbers;

    __device__ __forceinline__ Fp32Cut(const float4 &x, const float4 &y, float scale)
        : numbers{{x.x * scale, x.y * scale, x.z * scale, x.w * scale},
                  {y.x * scale, y.y * scale, y.z * scale, y.w * scale}}
    {
    }

    __device__ __forceinline__ void write(char *to)
    {
        numbers.add_old(to);
        numbers.write(to);
    }
};
using CutRow = Either<kPartial, Fp32Cut, ElementCut>::Type;

__device__ __forceinline__ void convert_packed(const Params &p)
{
    const int blocks = p.features.total_q / kConvertRows + p.batch;  // blocks of a head
    const int number = blockIdx.x % blocks, head = blockIdx.x / blocks;
    clear_unused_queries<kConvertThreads>(p, head, int64(number) * kConvertRows, int64(number + 1) * kConvertRows);
    const PackedTile<kConvertRows, false> packed(p, number);
    if (packed.index < 0)
        return;
    const Params own = packed.alone(p);
    const int64 first_row = int64(head) * p.features.total_q + packed.sequence.first_q + packed.tile * kConvertRows;
    const float *from_tile = p.dq_sum + first_row * kDqWidth;
    char *out = own.dq + head * p.dq_stride.head * kOutBytes;
    const float scale = p.scale;

#pragma unroll
    for (int i = threadIdx.x; i < kConvertParts; i += kConvertThreads) {
        const SummedPart part(i, from_tile, packed.tile * kConvertRows);
        if (part.chunk >= kHeadDim / 8)
            continue;
        if (part.group_row() + kDqGroupRows > own.seq_q) {  // the sequence's end cuts these rows
            for (int64 r = part.row; r < min(own.seq_q, int(part.row) + SummedPart::kRowsApart + 1);
                 r += SummedPart::kRowsApart) {
                const float4 *numbers = reinterpret_cast<const float4 *>(
                    from_tile + (r - packed.tile * kConvertRows) * kDqWidth + part.column);
                CutRow cut(__ldg(numbers), __ldg(numbers + 1), scale);
                cut.write(out + r * p.dq_stride.seq * kOutBytes + part.chunk * kChunkBytes);
            }
            continue;
        }
        ConvertedRows rows(part.read(), scale);
        rows.write(own, out + part.row * p.dq_stride.seq * kOutBytes + part.chunk * kChunkBytes, part.row);
    }
}
