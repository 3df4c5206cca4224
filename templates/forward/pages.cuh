#pragma once
#include "forward/coord.cuh"

// ---- addresses of rows of K and V in pages ------------------------------------------------------------------
//
// Policy of kernels with a paged cache; the others have keys.cuh. A block reads a head of K or V from a head pointer:
// its row 0 in page 0. The scales of rows in 8 bits lie likewise, with strides of their own. kBytes: of an element.
template <int kBytes = kKvBytes>
__device__ __forceinline__ const char *key_head(const char *tensor, const Strides &stride, const SequenceCoord &,
                                                int head)
{
    return tensor + head * stride.head * kBytes;
}

// A page has 2^page_shift rows of every head, [pages, page, Hkv, D]. Key j of a sequence is row j % page
// of page table[j / page]. An invalid page number counts as the last page. If a page is at least as long as a tile, the
// tile lies in one page: one look-up, whose latency all rows share. This does not hold after left padding, which has
// any length.
struct PagedRows {
    const Params &p;
    const int *table;
    const int first_key, last_key;  // of the tile; of the sequence
    bool one;
    uint32 page;  // the page, if there is one for the tile

    __device__ __forceinline__ PagedRows(const Params &p, const SequenceCoord &coord, int tile)
        : p(p), table(p.features.block_table + coord.batch * p.features.table_stride),
          first_key(coord.padding() + tile * kBc), last_key(coord.padding() + coord.seq_k(p) - 1),
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

    template <int kBytes = kKvBytes>
    __device__ __forceinline__ const char *at(const char *batch_head, const Strides &stride, int r) const
    {
        const int own = key(r), in_page = own & ((1 << p.features.page_shift) - 1);
        const uint32 own_page = one ? page : look_up(own);
        return batch_head + (own_page * stride.batch + in_page * stride.seq) * kBytes;
    }
};

using KeyRows = PagedRows;
