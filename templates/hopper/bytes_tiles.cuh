#pragma once
#include "forward/fp8_p.cuh"
#include "forward/int8_keys.cuh"
#include "forward/keys.cuh"

// ---- K in 8-bit integers and V in e4m3 numbers, in the workspace ----------------------------------------------------
//
// The step before (quantise.cuh, fp8_values.cuh) leaves each tile as it lies in shared memory, so one bulk copy loads
// it. After the keys of int8_keys.cuh, and before their means, comes V; after the counts a scale for each tile of V:
//
//     values         [Hkv][tiles of all sequences][kVTileBytes]: kHeadDim + kSumColumns rows of kBc numbers, e4m3
//     value scales   [Hkv][tiles of all sequences], fp32
//
// A tile consists of pages, [page][row][kRowBytes], and 16-byte chunks are permuted as wgmma expects it. A row of K is
// a key. A row of V is a column of the tensor, because wgmma takes 8-bit matrices only with the depth contiguous. The
// first row after V's own is 1, and the others are 0: the first column of P V after O's own has the sums of P's rows.

// The bytes of a row of a page: the swizzle's.
constexpr int page_row_bytes(int row_bytes)
{
    return row_bytes % 128 == 0 ? 128 : row_bytes % 64 == 0 ? 64 : 32;
}

// Tiles of kRows rows of kBytes bytes.
template <int kRows, int kBytes> struct BytesTile {
    static constexpr int kRowBytes = page_row_bytes(kBytes), kPageBytes = kRows * kRowBytes;
    static_assert(kRows % 8 == 0, "pages are whole repetitions of the swizzle");

    // Returns the place of a byte. Bytes of a chunk of 16 are neighbours.
    static __device__ __forceinline__ int place(int row, int byte)
    {
        const int in_page = row * kRowBytes + byte % kRowBytes;
        return byte / kRowBytes * kPageBytes + (in_page ^ (in_page / 128 % (kRowBytes / 16)) * 16);
    }

    // Returns the wgmma descriptor of a tile; addresses are in units of 16 bytes.
    static __device__ __forceinline__ uint64 descriptor(uint32 smem)
    {
        constexpr uint64 kSwizzle = uint64(kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3) << 62;
        return kSwizzle | uint64(8 * kRowBytes / 16) << 32 | smem / 16;
    }

    // What a k32 step adds to it.
    static __device__ __forceinline__ constexpr int step(int index)
    {
        return (index * 32 / kRowBytes * kPageBytes + index * 32 % kRowBytes) / 16;
    }
};

using KeyBytes = BytesTile<kBc, kHeadDim>;
using ValueBytes = BytesTile<kHeadDim + kSumColumns, kBc>;
using QueryBytes = BytesTile<kGroupRows, kHeadDim % 128 == 0 ? kHeadDim : 128 * kPages>;  // in the pages of Q
static_assert(kHeadDim % 64 == 0 && kKeyBytes == kHeadDim, "rows are whole pages");

// The number of a tile among the tiles of all heads.
__device__ __forceinline__ int64 number_of_tile(const Params &p, int batch, int kv_head, int tile)
{
    return kv_head * all_key_tiles(p) + first_key_tile(p, batch) + tile;
}

__device__ __forceinline__ char *rounded_keys(const Params &p, int64 tile)
{
    return reinterpret_cast<char *>(p.partial) + tile * kTileBytes;
}

__device__ __forceinline__ char *rounded_values(const Params &p, int64 tile)
{
    return rounded_keys(p, all_key_tiles(p) * (p.heads_q / p.group)) + tile * kVTileBytes;
}

// Where a thread's eight bytes of row r of K go (quantise.cuh).
__device__ __forceinline__ uint2 *key_place(uint2 *tile, int r, int parcel, int)
{
    return tile + KeyBytes::place(r, parcel * 8) / 8;
}

// Writes the rows after those of V, which give the row sums.
__device__ __forceinline__ void write_sum_rows(char *out)
{
    constexpr int kWords = kBc / 4;  // of a row
#pragma unroll 1
    for (int i = threadIdx.x; i < kSumColumns * kWords; i += kQuantThreads)
        *reinterpret_cast<uint32 *>(out + ValueBytes::place(kHeadDim + i / kWords, i % kWords * 4)) =
            i < kWords ? kFourOnes : 0;
}
