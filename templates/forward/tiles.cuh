#pragma once
#include "features/window.cuh"
#include "forward/place.cuh"

// ---- the range of tiles of K and V that a block processes: [first, count) -------------------------------------------

struct AnyFirstTile {
    int first;
};

struct FirstTileIs0 {
    static constexpr int first = 0;
};

struct TileRange : Either<kSplit || kWindow != Window::kNone, AnyFirstTile, FirstTileIs0>::Type {
    int count;
    int unmasked;  // tiles from this one on need a mask
    int plain;     // with a window, tiles before this one need a mask, too

    __device__ __forceinline__ TileRange(const Params &p, const BlockPlace &place)
    {
        if constexpr (kWindow != Window::kNone)
            find_window(*this, p, place);
        else
            find_all(*this, p, place);
        if constexpr (kSplit)
            take_share(*this, p, place);
    }

private:
    template <class Range>
    static __device__ __forceinline__ void find_window(Range &range, const Params &p, const BlockPlace &place)
    {
        const int last_row = min(place.first_row + kBr, place.rows) - 1;
        const WindowKeys keys(p, place.seq_k(p), place.query(p, place.first_row) + place.seq_k(p) - place.seq_q(p),
                              place.query(p, last_row) + place.seq_k(p) - place.seq_q(p));
        range.first = keys.begin / kBc;
        range.count = (keys.end + kBc - 1) / kBc;
        range.unmasked = keys.end_of_all / kBc;
        range.plain = (keys.begin_of_all + kBc - 1) / kBc;
    }

    template <class Range>
    static __device__ __forceinline__ void find_all(Range &range, const Params &p, const BlockPlace &place)
    {
        int keys = place.seq_k(p), keys_of_all = place.seq_k(p);  // seen by some row of the block; by every row
        if (kCausal) {
            const int offset = place.seq_k(p) - place.seq_q(p);
            const int last_row = min(place.first_row + kBr, place.rows) - 1;
            keys = max(0, min(keys, place.query(p, last_row) + 1 + offset));
            keys_of_all = max(0, min(keys, place.query(p, place.first_row) + 1 + offset));
        }
        if constexpr (kSplit)
            range.first = 0;
        range.count = (keys + kBc - 1) / kBc;
        range.unmasked = keys_of_all / kBc;
    }

    // Reduces the range to this block's share if several blocks divide the keys.
    template <class Range>
    static __device__ __forceinline__ void take_share(Range &range, const Params &p, const BlockPlace &place)
    {
        const int share = (range.count - range.first + place.splits(p) - 1) / place.splits(p);
        range.first = min(range.first + place.split * share, range.count);
        range.count = min(range.first + share, range.count);
    }
};
