#pragma once
#include "forward/coord.cuh"

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

    __device__ __forceinline__ TileRange(const Params &p, const BlockCoord &coord)
    {
        find_tiles(*this, p, coord);
        if constexpr (kSplit)
            take_share(*this, p, coord);
    }

private:
    // Reduces the range to this block's share if several blocks divide the keys.
    template <class Range>
    static __device__ __forceinline__ void take_share(Range &range, const Params &p, const BlockCoord &coord)
    {
        const int share = (range.count - range.first + coord.splits(p) - 1) / coord.splits(p);
        range.first = min(range.first + coord.split * share, range.count);
        range.count = min(range.first + share, range.count);
    }
};
