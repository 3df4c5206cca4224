#pragma once
#include "backward/cursor.cuh"

// The range of a block that has its keys alone: all tiles.
struct WholeRange {
    __device__ __forceinline__ WholeRange(const Params &, const TileRange &, int) {}

    static __device__ __forceinline__ Cursor start(const Params &p, const TileRange &tiles)
    {
        return {0, tiles.last_tile_first() ? tiles.end(p) - 1 : tiles.first};
    }

    static __device__ __forceinline__ bool has(const Params &p, const Cursor &at)
    {
        return at.head < p.group;
    }

    static __device__ __forceinline__ bool has_some(const Params &p, const TileRange &tiles)
    {
        return tiles.first < tiles.end(p);
    }
};

using QueryRange = WholeRange;

template <class... Any> __device__ __forceinline__ void put_part(const Any &...) {}

template <int kBlock> __device__ __forceinline__ void clear_parts(const Params &) {}

__device__ __forceinline__ uint32 *key_ticket(const Params &)
{
    return nullptr;
}
