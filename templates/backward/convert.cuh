#pragma once
#include "backward/dq_sums.cuh"
#include "backward/gradient.cuh"
#include "lib/mma.cuh"

// ---- the kernel after the main one: converts dQ from fp32 sums ------------------------------------------------
//
// Its entry point is in steps.cu.in. A lane has a quad's part of a fragment: 8 columns of rows quad_row and quad_row +
// 8 of an m16 tile. Eight lanes take the rows of one fragment; the next eight lanes take the next fragment.

constexpr int kConvertParts = kConvertRows * kDqWidth / 16;  // parts of 16 numbers
constexpr int kConvertThreads = kConvertParts > 256 ? 256 : kConvertParts;
static_assert(kBr % kConvertRows == 0, "tiles are whole blocks");

// The 16-byte chunk of a row of dQ that contains n8 tile n of a warp.
__device__ __forceinline__ int dq_chunk(int warp, int n)
{
    if constexpr (kWgmma)
        return warp % kColWarps * 2 * kDqPairs + n;
    else
        return (n / 2 * kColWarps + warp % kColWarps) * 2 + n % 2;
}

// Both rows of a part of a fragment, as elements.
struct ElementRows {
    uint4 upper, lower;

    __device__ __forceinline__ ElementRows(const float *from, int quad_row, float scale)
    {
        float4 x[4];  // numbers of lane 4 * quad_row + i; or element i of four lanes
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[e] = __ldg(reinterpret_cast<const float4 *>(from) + (kAddFour ? quad_row * 4 + e : e * 8 + quad_row));
        if constexpr (kAddFour) {
            upper = {pack2(x[0].x * scale, x[0].y * scale), pack2(x[1].x * scale, x[1].y * scale),
                     pack2(x[2].x * scale, x[2].y * scale), pack2(x[3].x * scale, x[3].y * scale)};
            lower = {pack2(x[0].z * scale, x[0].w * scale), pack2(x[1].z * scale, x[1].w * scale),
                     pack2(x[2].z * scale, x[2].w * scale), pack2(x[3].z * scale, x[3].w * scale)};
        } else {
            upper = {pack2(x[0].x * scale, x[1].x * scale), pack2(x[0].y * scale, x[1].y * scale),
                     pack2(x[0].z * scale, x[1].z * scale), pack2(x[0].w * scale, x[1].w * scale)};
            lower = {pack2(x[2].x * scale, x[3].x * scale), pack2(x[2].y * scale, x[3].y * scale),
                     pack2(x[2].z * scale, x[3].z * scale), pack2(x[2].w * scale, x[3].w * scale)};
        }
    }

    // Writes both rows. p: parameters of the sequence alone; to: address of the upper row; row: its index.
    __device__ __forceinline__ void write(const Params &p, char *to, int64 row) const
    {
        if (row < p.seq_q)
            *reinterpret_cast<uint4 *>(to) = upper;
        if (row + 8 < p.seq_q)
            *reinterpret_cast<uint4 *>(to + 8 * p.dq_stride.seq * kElemBytes) = lower;
    }
};

// The same in fp32.
struct Fp32Rows {
    Fp32Chunk upper, lower;

    __device__ __forceinline__ Fp32Rows(const float *from, int quad_row, float scale)
    {
        float4 x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[i] = __ldg(reinterpret_cast<const float4 *>(from) + (kAddFour ? quad_row * 4 + i : i * 8 + quad_row));
            x[i] = float4{x[i].x * scale, x[i].y * scale, x[i].z * scale, x[i].w * scale};
        }
        if constexpr (kAddFour) {
            upper = {{x[0].x, x[0].y, x[1].x, x[1].y}, {x[2].x, x[2].y, x[3].x, x[3].y}};
            lower = {{x[0].z, x[0].w, x[1].z, x[1].w}, {x[2].z, x[2].w, x[3].z, x[3].w}};
        } else {
            upper = {{x[0].x, x[1].x, x[0].y, x[1].y}, {x[0].z, x[1].z, x[0].w, x[1].w}};
            lower = {{x[2].x, x[3].x, x[2].y, x[3].y}, {x[2].z, x[3].z, x[2].w, x[3].w}};
        }
    }

    __device__ __forceinline__ void write(const Params &p, char *to, int64 row)
    {
        char *const to_lower = to + 8 * p.dq_stride.seq * 4;
        if (row < p.seq_q)
            upper.add_old(to);
        if (row + 8 < p.seq_q)
            lower.add_old(to_lower);
        if (row < p.seq_q)
            upper.write(to);
        if (row + 8 < p.seq_q)
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
        const int part = blockIdx.x % kSlices * kConvertParts + i;
        const int quad_row = part % 8, fragment = part / 8;
        const float *from = from_tile + fragment * kDqFragment;
        const int warp = fragment / (kDqRowTiles * 2 * kDqPairs);
        const int m = fragment / (2 * kDqPairs) % kDqRowTiles, n = fragment % (2 * kDqPairs);
        const int64 row = tile % p.q_tiles * kBr + (warp / kColWarps * kDqRowTiles + m) * 16 + quad_row;
        const int chunk = dq_chunk(warp, n);
        if (chunk >= kHeadDim / 8)
            continue;
        ConvertedRows rows(from, quad_row, scale);
        rows.write(p, out + row * p.dq_stride.seq * kOutBytes + chunk * kChunkBytes, row);
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
