#pragma once
#include "hopper/wgmma.cuh"
#include "lib/tile.cuh"

// ---- the wgmma products of a tile ------------------------------------------------------------------------------

// Stores four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix_x4(uint32 smem, const uint32 (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(r[0]), "r"(r[1]),
                 "r"(r[2]), "r"(r[3])
                 : "memory");
}

// The layout of dS^T in shared memory.
struct ScoreTile {
    static __device__ __forceinline__ uint32 chunk_offset(int key, int chunk)
    {
        return chunk / 8 * kKvPageBytes + TileForm<kPageColumns>::chunk_offset(key, chunk % 8);
    }
};

// Stores a warp's dS^T into the tile.
__device__ __forceinline__ void store_ds(const uint32 (&a)[kQuerySteps][1][4], uint32 score_smem, int first_key,
                                         int lane)
{
#pragma unroll
    for (int step = 0; step < kQuerySteps; step++)
        stmatrix_x4(score_smem + ScoreTile::chunk_offset(first_key + lane % 16, 2 * step + lane / 16), a[step][0]);
}

// Address of a lane's rows of a warp's dS^T in a tile, for steps 0 and 1 of store_ds_at.
__device__ __forceinline__ int ds_place(int first_key, int lane)
{
    return ScoreTile::chunk_offset(first_key + lane % 16, lane / 16);
}

// store_ds with one address for all steps. A step has the next two 16-byte chunks of a row, whose numbers are permuted
// by exclusive or.
__device__ __forceinline__ void store_ds_at(const uint32 (&a)[kQuerySteps][1][4], uint32 place)
{
#pragma unroll
    for (int step = 0; step < kQuerySteps; step++)
        stmatrix_x4((place ^ step % 4 * 32) + step / 4 * kKvPageBytes, a[step][0]);
}

using Sums = float[1][2 * kOutPairs][4];  // of 64 rows of dK or dV

// Most columns of one product: it must not name more registers than a thread has at launch.
constexpr int kMostSummed = 128;

// sums += a b, from column kFirst on. a: 16 columns of P^T or dS^T in registers; b: 16 rows of a tile of dO or Q.
template <int kFirst = 0> __device__ __forceinline__ void add_to_sums(Sums &d, const uint32 (&a)[4], uint64 b)
{
    constexpr int kLeft = kHeadDimPadded - kFirst, kColumns = kLeft < kMostSummed ? kLeft : kMostSummed;
    Wgmma<kColumns>::template add<1, kFirst / 8>(d, a, b + kFirst / 64 * kQPageBytes / 16);
    if constexpr (kColumns < kLeft)
        add_to_sums<kFirst + kColumns>(d, a, b);
}

// Starts S^T = K Q^T or dP^T = V dO^T of a warpgroup. rows_smem: its 64 rows of K or V.
__device__ __forceinline__ void start_scores(float (&s)[1][kQueryTiles][4], uint32 rows_smem, uint32 tile_smem)
{
    const uint64 a = tile_descriptor(rows_smem, 0), b = tile_descriptor(tile_smem, 0);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDepth; step++)
        Wgmma<kBr>::multiply<0, 0>(s, a + (step / 4 * kKvPageBytes + step % 4 * 32) / 16,
                                   b + (step / 4 * kQPageBytes + step % 4 * 32) / 16, step > 0);
    wgmma_commit();
}

// K or V of a warpgroup as the left operand of S^T or dP^T: in shared memory, or of each warp's 16 keys in registers.
template <bool kHeld> struct KeyOperand {
    uint32 rows_smem;

    __device__ __forceinline__ KeyOperand(uint32 rows, int, int) : rows_smem(rows) {}

    __device__ __forceinline__ void start_scores(float (&s)[1][kQueryTiles][4], uint32 tile_smem) const
    {
        ::start_scores(s, rows_smem, tile_smem);
    }
};

// With 64 queries, the left operand in shared memory has as many bytes as the right one, and the tensor cores read
// both as fast as shared memory can give them. So copies of other data wait.
template <> struct KeyOperand<true> {
    uint32 fragments[kDepth][4];

    __device__ __forceinline__ KeyOperand(uint32 rows_smem, int warp, int lane)
    {
        const int row = warp % 4 * 16 + lane % 16;
#pragma unroll
        for (int step = 0; step < kDepth; step++)
            ldmatrix_x4(fragments[step], rows_smem + step / 4 * kKvPageBytes +
                                             TileForm<kPageColumns>::chunk_offset(row, step % 4 * 2 + lane / 16));
    }

    __device__ __forceinline__ void start_scores(float (&s)[1][kQueryTiles][4], uint32 tile_smem) const
    {
        const uint64 b = tile_descriptor(tile_smem, 0);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kDepth; step++)
            Wgmma<kBr>::multiply<0>(s, fragments[step], b + (step / 4 * kQPageBytes + step % 4 * 32) / 16, step > 0);
        wgmma_commit();
    }
};

// Starts dV += P^T dO or dK += dS^T Q of a warpgroup; steps of 16 queries from kFrom to kTo.
template <int kFrom = 0, int kTo = kQuerySteps>
__device__ __forceinline__ void start_sums(Sums &sums, const uint32 (&a)[kQuerySteps][1][4], uint32 tile_smem)
{
    const uint64 b = tile_descriptor(tile_smem, kQPageBytes);
    wgmma_fence();
#pragma unroll
    for (int step = kFrom; step < kTo; step++)
        add_to_sums(sums, a[step][0], b + step * 16 * kPageRowBytes / 16);
    wgmma_commit();
}

// Starts dQ = dS K of a warpgroup's rows and columns, over all keys of the block.
__device__ __forceinline__ void start_dq(float (&dq)[1][2 * kDqPairs][4], uint32 score_smem, uint32 k_smem)
{
    const uint64 a = tile_descriptor(score_smem, 0), b = tile_descriptor(k_smem, kKvPageBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBc / 16; step++)
        Wgmma<kDqColumns>::multiply<1, 1>(dq, a + step * 16 * kPageRowBytes / 16, b + step * 16 * kPageRowBytes / 16,
                                          step > 0);
    wgmma_commit();
}
