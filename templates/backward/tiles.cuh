#pragma once
#include "backward/coord.cuh"

// ---- the tiles of queries that a block processes, for each head of its group ----------------------------------

// The range of tiles, from `first` to end(p). Those before `unmasked` need a mask.
struct TileRange : Tiles {
    // p: parameters of the block's sequence.
    __device__ __forceinline__ TileRange(const Params &p, const BlockCoord &coord)
    {
        find_tiles(*this, p, coord);
    }

    __device__ __forceinline__ int end(const Params &p) const
    {
        return end_of(*this, p);
    }

private:
    template <class Range> static __device__ __forceinline__ int end_of(const Range &range, const Params &p)
    {
        if constexpr (kWindow != Window::kNone || kVarlen)
            return range.stop;
        else
            return p.q_tiles;
    }
};
