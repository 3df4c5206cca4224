#pragma once
#include "backward/coord.cuh"

// ---- the tiles of queries that a block processes, for each head of its group ----------------------------------

// The order of the tiles: from the last to the first, or ascending (dq_order.cuh). Policies: one order, or the block's.
struct OneOrder {
    __device__ __forceinline__ explicit OneOrder(const BlockCoord &) {}

    static __device__ __forceinline__ bool last_tile_first()
    {
        return kLastTileFirst;
    }
};

struct BlockOrder {
    bool ascending;

    __device__ __forceinline__ explicit BlockOrder(const BlockCoord &coord) : ascending(coord.last_keys_first) {}

    __device__ __forceinline__ bool last_tile_first() const
    {
        return !ascending;
    }
};

using TileOrder = Either<kLastKeysFirst, BlockOrder, OneOrder>::Type;

// The range of tiles, from `first` to end(p). Those before `unmasked` need a mask.
struct TileRange : Tiles, TileOrder {
    // p: parameters of the block's sequence.
    __device__ __forceinline__ TileRange(const Params &p, const BlockCoord &coord) : TileOrder(coord)
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
