#pragma once
#include "lib/types.cuh"

// ---- layout of tiles in shared memory ----------------------------------------------------------------------------
//
// A tile is [rows][kColumns] elements, addressed in chunks of 16 bytes. A warp's ldmatrix reads one chunk
// of eight rows at a time, so these eight chunks must be in different banks. The same holds for eight consecutive
// chunks that a load writes.
//
// Swizzle: chunk c of row r is stored at c ^ swizzle(r). Let p be the largest power of two, at most 8, that divides the
// number of chunks of a row. Rows r and r + 8 / p begin in the same banks; the XOR with (r / (8 / p)) % p separates
// them. It permutes only within aligned groups of p chunks, so eight consecutive chunks still cover every bank once.
//
// Padding: one chunk after each row makes the pitch an odd number of chunks.

template <int kColumns> struct TileForm {
    static constexpr int kChunks = kColumns * kElemBytes / 16;                         // 16-byte chunks per row
    static constexpr int kPitch = (kSwizzle ? kChunks : kChunks + 1) * 16;             // bytes per row
    static constexpr int kPermuted = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;  // p above
    static_assert(kColumns * kElemBytes % 32 == 0, "fragments are two chunks wide");

    // Depends only on row % 8.
    static __device__ __forceinline__ int swizzle(int row)
    {
        return kSwizzle ? row / (8 / kPermuted) % kPermuted : 0;
    }

    // Byte offset of a chunk in its tile.
    static __device__ __forceinline__ uint32 chunk_offset(int row, int chunk)
    {
        return row * kPitch + (chunk ^ swizzle(row)) * 16;
    }

    // The byte offset of chunk 2 * pair + odd of a row. lane_offset: the offset of chunk `odd` (0 or 1) of the row.
    // pair is a constant after unrolling, so this is one XOR and one immediate.
    static __device__ __forceinline__ uint32 pair_offset(uint32 lane_offset, int pair)
    {
        const int chunk = 2 * pair;
        if constexpr (kSwizzle)
            return (lane_offset ^ (chunk % kPermuted * 16)) + chunk / kPermuted * kPermuted * 16;
        else
            return lane_offset + chunk * 16;
    }

    // This lane's ldmatrix.x4 offset for a 16x16 block, with its quarters in the order top left, bottom left, top
    // right, bottom right (A; B of a transposed tile) ...
    static __device__ __forceinline__ uint32 lane_offset_rows(int lane)
    {
        return chunk_offset(lane % 16, lane / 16);
    }

    // ... or top left, top right, bottom left, bottom right (B; A of a transposed tile).
    static __device__ __forceinline__ uint32 lane_offset_cols(int lane)
    {
        return chunk_offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    }
};

// The layout of rows of the tensors: kHeadDimPadded columns.
using RowTile = TileForm<kHeadDimPadded>;
constexpr int kChunks = RowTile::kChunks;
constexpr int kPitch = RowTile::kPitch;

__device__ __forceinline__ uint32 chunk_offset(int row, int chunk)
{
    return RowTile::chunk_offset(row, chunk);
}

__device__ __forceinline__ uint32 pair_offset(uint32 lane_offset, int pair)
{
    return RowTile::pair_offset(lane_offset, pair);
}
