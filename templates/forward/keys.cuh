#pragma once
#include "forward/place.cuh"

// ---- addresses of rows of K and V -------------------------------------------------------------------------
//
// A block reads a head of K or V from a head pointer: its row 0, in page 0 if the cache is paged.
__device__ __forceinline__ const char *key_plane(const char *tensor, const Strides &stride, const BlockPlace &place,
                                                 int head)
{
    if constexpr (kPaged)
        return tensor + head * stride.head * 2;
    else if constexpr (kVarlen)
        return tensor + (place.sequence.first_k * stride.seq + head * stride.head) * 2;
    else if constexpr (kLeftpad)
        return tensor +
               (place.key_batch() * stride.batch + place.sequence.first_k * stride.seq + head * stride.head) * 2;
    else
        return tensor + (place.key_batch() * stride.batch + head * stride.head) * 2;
}

// A tile whose rows are contiguous in memory.
struct ContiguousRows {
    const int tile;

    __device__ __forceinline__ ContiguousRows(const Params &, const BlockPlace &, int tile) : tile(tile)
    {
    }

    __device__ __forceinline__ const char *at(const char *plane, const Strides &stride, int r) const
    {
        return plane + (int64(tile) * kBc + r) * stride.seq * 2;
    }
};

// Paged K and V. A page has 2^page_shift rows of every head, [pages, page, Hkv, D]. Key j of a sequence is row j % page
// of page table[j / page]. An invalid page number counts as the last page. If a page is at least as long as a tile, the
// tile lies in one page: one look-up, whose latency all rows share. This does not hold after left padding, which has
// any length.
struct PagedRows {
    const Params &p;
    const int *table;
    const int first_key, last_key;  // of the tile; of the sequence
    bool one;
    uint32 page;  // the page, if there is one for the tile

    __device__ __forceinline__ PagedRows(const Params &p, const BlockPlace &place, int tile)
        : p(p), table(p.features.block_table + place.batch * p.features.table_stride),
          first_key(place.padding() + tile * kBc), last_key(place.padding() + place.seq_k(p) - 1),
          one(!kLeftpad && (kBc & (kBc - 1)) == 0 && kBc >> p.features.page_shift <= 1), page(0)
    {
        if (one)
            page = look_up(key(0));
    }

    // The key of row r. For a row beyond the sequence's end or a tile that will not be read: any key whose table entry
    // exists.
    __device__ __forceinline__ int key(int r) const
    {
        return max(0, min(first_key + r, last_key));
    }

    __device__ __forceinline__ uint32 look_up(int key) const
    {
        return min(uint32(__ldg(table + (key >> p.features.page_shift))), p.features.pages - 1u);
    }

    __device__ __forceinline__ const char *at(const char *plane, const Strides &stride, int r) const
    {
        const int own = key(r), in_page = own & ((1 << p.features.page_shift) - 1);
        const uint32 own_page = one ? page : look_up(own);
        return plane + (own_page * stride.batch + in_page * stride.seq) * 2;
    }
};

using KeyRows = Either<kPaged, PagedRows, ContiguousRows>::Type;

// Returns the key of row r of a tile, so that a lane has eight neighbours of 32 keys (kWide). Columns 2 t and 2 t + 1
// of column tile n are keys 8 t + 2 n and 8 t + 2 n + 1. Rows after the last key repeat it, and are masked.
__device__ __forceinline__ int wide_key(int r, int last)
{
    return min(r / 32 * 32 + r / 2 % 4 * 8 + r / 8 % 4 * 2 + r % 2, last);
}
