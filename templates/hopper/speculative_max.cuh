#pragma once
#include "forward/softmax.cuh"
#include "hopper/wgmma.cuh"
#include "lib/mma.cuh"
#include "lib/ptx.cuh"

constexpr bool kSpeculatesMax = true;

// ---- the speculative maximum: P without a search for the maximum of the tile -----------------------------------
//
// Once a row has seen a tile, its maximum hardly grows, and P may exceed 1 by as much as 16 bits can hold. So for tiles
// without a mask, P is computed with the maxima that the rows have so far. The row sums, which are needed anyway, show
// if a maximum was too small. This is rare. The warp then computes S again by itself and takes the usual way: S cannot
// be recovered from P, which may be infinite.

// The limit of a lane's sum of P in a row, and so of each element. fp16 holds twice as much. With a wider type the
// limit leaves fp32 room for O, if values of V are below 2^60.
constexpr float kMostGuessed = Elem::kHasRangeOfFp32 ? 0x1p40f : 0x1p15f;

// Turns S into P with the speculative maxima, and adds to the sums. Returns false, in all lanes of the warp, if a sum
// is too large: then S is lost and nothing else has changed.
__device__ __forceinline__ bool speculate_tile(float (&s)[kRowTiles][kColTiles][4], RowState &row, float scale_log2,
                                               const float (&offset)[kRowTiles][2])
{
    constexpr int m = 0;
    float sum[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float shift = exponent_of(row.max[m][h], scale_log2);
        if constexpr (kAlibiOffsets)
            shift = fmaf(-offset[m][h], scale_log2, shift);
#pragma unroll
        for (int n = 0; n < kColTiles; n++)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++) {
                s[m][n][e] = exp2_approx(fmaf(s[m][n][e], scale_log2, -shift));
                sum[h] = n == 0 && e == 2 * h ? s[m][n][e] : sum[h] + s[m][n][e];
            }
    }
    // The comparison is false for NaN, so NaN counts as wrong.
    const bool right = __all_sync(0xffffffffu, sum[0] <= kMostGuessed && sum[1] <= kMostGuessed);
    if (right)
#pragma unroll
        for (int h = 0; h < 2; h++)
            row.sum[m][h] += sum[h];
    return right;
}

// s += Q K^T for this warp's 16 rows, by mma.sync of this warp alone. q_smem: the 64 rows of its warpgroup.
__device__ __forceinline__ void add_products(float (&s)[kRowTiles][kColTiles][4], uint32 q_smem, uint32 k_smem)
{
    const int thread = thread_index(), lane = thread % 32;  // computed here, because they are rarely needed
    const int row = thread % 128 / 32 * 16 + lane % 16, key = lane / 16 * 8 + lane % 8;
    q_smem += row * kPageRowBytes + (lane / 16 ^ row % 8) * 16;
    k_smem += key * kPageRowBytes + (lane / 8 % 2 ^ key % 8) * 16;
#pragma unroll 1
    for (int step = 0; step < kDepth; step++) {
        const uint32 chunk = step % 4 * 32;
        uint32 a[4], b[4];
        ldmatrix_x4(a, (q_smem ^ chunk) + step / 4 * kQPageBytes);
#pragma unroll
        for (int n = 0; n < kColTiles; n += 2) {
            ldmatrix_x4(b, (k_smem ^ chunk) + step / 4 * kTilePageBytes + n * 8 * kPageRowBytes);
            mma_k16(s[0][n], a, b[0], b[1]);
            mma_k16(s[0][n + 1], a, b[2], b[3]);
        }
    }
    pin(s);  // K's values are used before its stage is given back
}

// Computes S of a step again, by this warp alone. rows: the state of the consumer (fwd_consumer.cuh).
template <class AnyRows> __device__ __forceinline__ void make_again(AnyRows &rows)
{
    clear(rows.s);
    add_products(rows.s, rows.q_smem, rows.k_smem());
    if constexpr (kAlibiMma)
        add_slopes(rows.s, rows.slopes);
    else if constexpr (kBiasInAccumulator)
        rows.group.side.add(rows.s, rows.unit);
}

// Makes P with the speculative maxima; for tiles without a mask.
template <class AnyRows> __device__ __forceinline__ void speculative_p(AnyRows &rows)
{
    float offset[kRowTiles][2] = {};
    rows.template add_terms<false>(offset);
    const bool right = speculate_tile(rows.s, rows.row, rows.p.scale_log2, offset);
    rows.finish_o();
    rows.pack();
    if (!right) {
        make_again(rows);
        rows.template softmax<false>().apply(rows.o);
        rows.pack();
    }
    rows.release_k();  // K is needed until here, because S may have to be computed again
}
