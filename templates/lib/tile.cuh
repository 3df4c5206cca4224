#pragma once
#include "lib/types.cuh"

// ---- tiles in shared memory -----------------------------------------------------------------------
//
// A tile is [rows][kColumns] elements, addressed in chunks of 16 bytes (8 elements). A warp's
// ldmatrix reads one chunk of eight rows at a time, so these eight must lie in different banks, as must
// any eight consecutive chunks that a fill writes.
//
// Swizzle: chunk c of row r is stored at c ^ swizzle(r). Let p be the largest power of two, at most 8,
// that divides the chunks of a row. Rows r and r + 8 / p begin in the same banks; XOR with
// (r / (8 / p)) % p tells them apart, and permutes only within aligned groups of p chunks, so that
// eight consecutive chunks still cover every bank once.
// Padding: one chunk behind each row makes the pitch an odd number of chunks.

template <int kColumns> struct TileForm {
    static constexpr int kChunks = kColumns / 8;                                       // 16-byte chunks per row
    static constexpr int kPitch = (kSwizzle ? kChunks : kChunks + 1) * 16;             // bytes per row
    static constexpr int kPermuted = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;  // p above
    static_assert(kColumns % 16 == 0, "fragments are 16 columns wide");

    // Depends on row % 8 only.
    static __device__ __forceinline__ int swizzle(int row)
    {
        return kSwizzle ? row / (8 / kPermuted) % kPermuted : 0;
    }

    // Byte offset of a chunk in its tile.
    static __device__ __forceinline__ uint32 chunk_offset(int row, int chunk)
    {
        return row * kPitch + (chunk ^ swizzle(row)) * 16;
    }

    // The same for a lane whose offset for chunk `odd` (0 or 1) of its row is known: chunk
    // 2 * pair + odd. pair is a constant after unrolling, so this is one XOR and one immediate.
    static __device__ __forceinline__ uint32 pair_offset(uint32 lane_offset, int pair)
    {
        const int chunk = 2 * pair;
        if constexpr (kSwizzle)
            return (lane_offset ^ (chunk % kPermuted * 16)) + chunk / kPermuted * kPermuted * 16;
        else
            return lane_offset + chunk * 16;
    }

    // Where a lane points ldmatrix.x4 for a 16x16 block: its quarters in the order top left, bottom
    // left, top right, bottom right (A; B of a transposed tile) ...
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

// Rows of the tensors: kHeadDimPadded columns.
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
