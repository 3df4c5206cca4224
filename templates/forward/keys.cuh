#pragma once
#include "forward/place.cuh"

// ---- where K and V lie -----------------------------------------------------------------------------------
//
// A head of K or V that a block reads begins at a head pointer: row 0, of page 0 if it lies in pages.
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

// The rows of a tile, one after the other.
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

// K and V in pages: a page has 2^page_shift rows of every head, [pages, page, Hkv, D]. Key j of a sequence is row
// j % page of page table[j / page], and a number that is no page's counts as the last one's.
// Where pages are as long as a tile at least, it lies in one: a single look-up, whose latency the rows share. Not where
// padding, which has any length, comes first.
struct PagedRows {
    const Params &p;
    const int *table;
    const int first_key, last_key;  // of the tile; of the sequence
    bool one;
    uint32 page;  // that one

    __device__ __forceinline__ PagedRows(const Params &p, const BlockPlace &place, int tile)
        : p(p), table(p.features.block_table + place.batch * p.features.table_stride),
          first_key(place.padding() + tile * kBc), last_key(place.padding() + place.seq_k(p) - 1),
          one(!kLeftpad && (kBc & (kBc - 1)) == 0 && kBc >> p.features.page_shift <= 1), page(0)
    {
        if (one)
            page = look_up(key(0));
    }

    // Of row r; where a tile is that will not be read, or a row beyond the sequence's end, some key of its row of the
    // table.
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

// The key of a row of a tile, where a lane is to have eight neighbours of 32 keys (kWide): of column tile n, columns 2 t
// and 2 t + 1 are keys 8 t + 2 n and the next one. Nothing is after the last key: rows repeat it, and are masked.
__device__ __forceinline__ int wide_key(int r, int last)
{
    return min(r / 32 * 32 + r / 2 % 4 * 8 + r / 8 % 4 * 2 + r % 2, last);
}
