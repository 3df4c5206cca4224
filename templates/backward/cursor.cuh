#pragma once
#include "backward/tiles.cuh"

// A position in the order of processing: a tile of queries of one head of the group.
struct Cursor {
    int head, tile;

    __device__ __forceinline__ void advance(const TileRange &tiles, int end)
    {
        if (tiles.last_tile_first()) {
            if (--tile < tiles.first) {
                tile = end - 1;
                head++;
            }
        } else {
            if (++tile == end) {
                tile = tiles.first;
                head++;
            }
        }
    }
};

// Returns the position `count` tiles after `at`.
__device__ __forceinline__ Cursor after(const Cursor &at, int count, const Params &p, const TileRange &tiles)
{
    Cursor cursor = at;
    for (int i = 0; i < count; i++)
        cursor.advance(tiles, tiles.end(p));
    return cursor;
}
