#pragma once
#include "backward/dq_sums.cuh"
#include "backward/gradient.cuh"
#include "lib/mma.cuh"

// ---- dQ of a block that has all keys of a head (kDqBlock) -----------------------------------------------------------
//
// If the keys are one tile, a tile of dQ is complete where it was computed, and goes from registers to the tensor. Else
// the block sums in the workspace, where no other block adds. Each number belongs to one thread, so the order of sums
// is fixed.

// Clears the numbers that the block will add to.
__device__ __forceinline__ void clear_sums(const Params &p, unsigned batch_head)
{
    if (p.k_tiles == 1 || p.dq == nullptr)
        return;
    const int64 quarters = int64(p.group) * p.q_tiles * (kDqTile / 4);
    float4 *sum = reinterpret_cast<float4 *>(p.dq_sum) + batch_head * quarters;
    for (int64 i = threadIdx.x; i < quarters; i += kThreads)
        sum[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
}

// Scales m16 tiles of dQ, from `first` of a tile of queries on, and writes them. Neighbouring lanes exchange halves of
// two neighbouring n8 tiles, so that each lane stores four contiguous columns of one row.
__device__ __forceinline__ void write_dq(const Params &p, int batch, int head, int tile, int first, int col_warp,
                                         const DqTile &dq, int lane)
{
    if constexpr (kPartial) {
        const int64 of_head = batch * p.dq_stride.batch + head * p.dq_stride.head;
#pragma unroll
        for (int m = 0; m < kDqPartTiles; m++)
            put_fp32_tile<kHeadDim>(p.dq, of_head, p.dq_stride, tile * kBr + (first + m) * 16, p.seq_q, dq[m], p.scale,
                                    lane, [&](int n) { return (n / 2 * kColWarps + col_warp) * 2 + n % 2; });
        return;
    }
    const bool right = lane % 2 != 0;  // this lane takes columns of the right one of the two
    int row = tile * kBr + first * 16 + lane / 4;
    char *to = p.dq + (batch * p.dq_stride.batch + head * p.dq_stride.head + row * p.dq_stride.seq +
                       (col_warp * 2 + right) * 8 + lane % 4 / 2 * 4) *
                          kElemBytes;
    each_of<kDqPartTiles, 2>([&](int m, int h) {
#pragma unroll
        for (int pair = 0; pair < kDqPairs; pair++) {
            const float(&x)[4] = dq[m][2 * pair], (&y)[4] = dq[m][2 * pair + 1];
            const uint32 of_left = pack2(x[2 * h] * p.scale, x[2 * h + 1] * p.scale);
            const uint32 of_right = pack2(y[2 * h] * p.scale, y[2 * h + 1] * p.scale);
            const uint32 got = __shfl_xor_sync(0xffffffffu, right ? of_left : of_right, 1);
            const int chunk = (pair * kColWarps + col_warp) * 2 + right;
            if (chunk < kHeadDim / 8 && row < p.seq_q)
                *reinterpret_cast<uint2 *>(to + pair * kColWarps * 32) =
                    right ? uint2{got, of_right} : uint2{of_left, got};
        }
        row += 8;
        to += 8 * p.dq_stride.seq * kElemBytes;
    });
}

// Sets rows of dQ that see no key to 0: those before tile `first` and from tile `end` on.
__device__ __forceinline__ void clear_unseen(const Params &p, int batch, int head, int first, int end)
{
    if (kMerges || p.k_tiles > 1 || p.dq == nullptr)
        return;
    const int before = min(first * kBr, p.seq_q), after = max(p.seq_q - end * kBr, 0);
    char *out = p.dq + (batch * p.dq_stride.batch + head * p.dq_stride.head) * kOutBytes;
    constexpr int kRow = kHeadDim / 8;  // 16-byte chunks per row
    constexpr int kRows = kThreads / kRow;
    const int chunk = threadIdx.x % kRow;
    for (int i = threadIdx.x / kRow; i < before + after && threadIdx.x < kRows * kRow; i += kRows) {
        const int row = i < before ? i : i - before + end * kBr;
        clear_chunk(out + row * p.dq_stride.seq * kOutBytes + chunk * kChunkBytes);
    }
}
