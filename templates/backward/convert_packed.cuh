#pragma once
#include "backward/convert.cuh"

// ---- the conversion of dQ of packed sequences -----------------------------------------------------------------------

// Eight columns of a row, of an m16 tile that the sequence's end cuts.
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
        constexpr int kFragments = kDqWidth / 8;  // fragments of an m16 tile
        const int quad_row = i % 8, fragment = i / 8;
        const float *from = from_tile + fragment * kDqFragment;
        const int m = fragment / kFragments, warp = fragment % kFragments / (2 * kDqPairs);
        const int n = fragment % (2 * kDqPairs);
        const int64 row = packed.tile * kConvertRows + m * 16 + quad_row;
        const int chunk = dq_chunk(warp, n);
        if (chunk >= kHeadDim / 8)
            continue;
        if (row - quad_row + 16 > own.seq_q) {  // the sequence's end cuts this m16 tile
            for (int64 r = row; r < min(own.seq_q, int(row) + 9); r += 8) {
                const float4 *numbers = reinterpret_cast<const float4 *>(
                    from_tile + (r - packed.tile * kConvertRows) * kDqWidth + fragment % kFragments * 8);
                CutRow cut(__ldg(numbers), __ldg(numbers + 1), scale);
                cut.write(out + r * p.dq_stride.seq * kOutBytes + chunk * kChunkBytes);
            }
            continue;
        }
        ConvertedRows rows(from, quad_row, scale);
        rows.write(own, out + row * p.dq_stride.seq * kOutBytes + chunk * kChunkBytes, row);
    }
}
