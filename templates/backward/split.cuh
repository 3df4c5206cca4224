#pragma once
#include "backward/cursor.cuh"
#include "backward/turns.cuh"
#include "backward/writers.cuh"

// ---- kSplit: several blocks share the queries of their keys, if there are few blocks ------------------------------
//
// Block n of a tile of keys processes the n-th part of the tiles of queries, counted over all heads of the group, one
// head after the other. It writes its partial dK and dV to the workspace, in the order of its fragments. A later kernel
// sums the parts in the order of the blocks (combine.cuh).
//
// With kHeadBlocks, a block has some whole query heads of the group. All blocks add to one part, in the order of their
// heads. So dK and dV are the same bits at each launch. This is for masks: blocks of later keys have fewer tiles of
// each head. If blocks walked all heads, they would drift apart, and L2 would no longer hold most of Q, dO and dQ.

struct SplitRange {
    Cursor begin, end;
    int steps;  // number of tiles of queries in this block's part

    __device__ __forceinline__ SplitRange(const Params &p, const TileRange &tiles, int split)
    {
        const int count = max(tiles.end(p) - tiles.first, 0);
        // With kHeadBlocks a part has whole heads, because blocks of different parts may process tiles in different
        // orders (coord.cuh). So parts are counted in heads, and else in tiles.
        const int unit = kHeadBlocks ? count : 1;
        const int64 all = kHeadBlocks ? int64(p.group) : int64(count) * p.group;
        begin = cursor(p, tiles, count, int(all * split / p.splits) * unit);
        end = cursor(p, tiles, count, int(all * (split + 1) / p.splits) * unit);
        steps = (int(all * (split + 1) / p.splits) - int(all * split / p.splits)) * unit;
    }

    static __device__ __forceinline__ Cursor cursor(const Params &p, const TileRange &tiles, int count, int number)
    {
        const int head = number / max(count, 1), tile = number - head * count;
        return {head, tiles.last_tile_first() ? tiles.end(p) - 1 - tile : tiles.first + tile};
    }

    __device__ __forceinline__ Cursor start(const Params &, const TileRange &) const
    {
        return begin;
    }

    __device__ __forceinline__ bool has(const Params &, const Cursor &at) const
    {
        static_assert(kWgmma || !kLastKeysFirst, "Hopper's blocks count their steps");
        return at.head < end.head ||
               (at.head == end.head && (kLastTileFirst ? at.tile > end.tile : at.tile < end.tile));
    }

    __device__ __forceinline__ bool has_some(const Params &p, const TileRange &) const
    {
        return has(p, begin);
    }
};

using QueryRange = SplitRange;

constexpr int kPartFloats = kWriters * kKeyTiles * 2 * kOutPairs * 4;  // numbers of a part of dK or of dV

// Parts of a tile of keys. With kHeadBlocks there is one, to which all blocks add.
__device__ __forceinline__ int parts_of(const Params &p)
{
    return kHeadBlocks ? 1 : p.splits;
}

// Tiles of keys of all heads.
__device__ __forceinline__ int64 all_key_blocks(const Params &p)
{
    return int64(p.k_tiles) * batches(p) * (p.heads_q / p.group);
}

// Number of the block's tile of keys, in its head or over all heads.
template <class Coord> __device__ __forceinline__ int key_tile_of(const Coord &coord)
{
    if constexpr (kVarlen)
        return coord.number;
    else
        return coord.first_key / kBc;
}

__device__ __forceinline__ int64 key_block_of(const Params &p, const BlockCoord &coord)
{
    return (int64(coord.batch) * (p.heads_q / p.group) + coord.kv_head) * p.k_tiles + key_tile_of(coord);
}

// Words of the counters after the parts: of blocks that have added to dK of a tile of keys, of those that have added to
// its dV, and of tickets.
__device__ __forceinline__ int64 counter_words(const Params &p)
{
    return kHeadBlocks ? (2 * all_key_blocks(p) + 1 + 31) / 32 * 32 : 0;
}

__device__ __forceinline__ uint32 *key_counters(const Params &p)
{
    return reinterpret_cast<uint32 *>(const_cast<float *>(p.rows)) - counter_words(p);
}

// The counter of tickets, by which blocks that add in order are numbered. There is one if p.splits > 1.
__device__ __forceinline__ uint32 *key_ticket(const Params &p)
{
    return key_counters(p) + 2 * all_key_blocks(p);
}

// Address of this thread's numbers of a part. Parts are before the rows of LSE and delta in the workspace.
__device__ __forceinline__ float4 *part_of(const Params &p, const BlockCoord &coord, int split, int which)
{
    const int64 key_blocks = all_key_blocks(p);
    const int64 key_block = key_block_of(p, coord);
    const int64 from_end = ((parts_of(p) - split) * key_blocks - key_block) * 2 - which;
    return reinterpret_cast<float4 *>(const_cast<float *>(p.rows) - counter_words(p) - from_end * kPartFloats) +
           writer();
}

// Writes a block's part of dK or dV to the workspace, or adds it.
template <int kTiles>
__device__ __forceinline__ void put_part(const Params &p, const BlockCoord &coord, int split, int which,
                                         const float (&x)[kKeyTiles][kTiles][4])
{
    static_assert(kTiles == 2 * kOutPairs, "dK and dV have as many columns");
    if (kHeadBlocks && (which ? p.dv : p.dk) == nullptr)
        return;
    float4 *part = part_of(p, coord, kHeadBlocks ? 0 : split, which);
    uint32 *counter = key_counters(p) + key_block_of(p, coord) * 2 + which;
    if constexpr (kHeadBlocks)
        await_count(counter, 0, split, threadIdx.x % 32);
    each_of<kKeyTiles, kTiles>([&](int m, int n) {
        float4 *to = part + (m * kTiles + n) * kWriters;
        if constexpr (kHeadBlocks)
            add_global_16(reinterpret_cast<float *>(to), x[m][n]);
        else
            *to = float4{x[m][n][0], x[m][n][1], x[m][n][2], x[m][n][3]};
    });
    if constexpr (kHeadBlocks) {
        writers_meet();  // all threads have added
        if (writer() == 0)
            count_up(counter);
    }
}

// Sets the sums of dK and dV and the counters to 0, before blocks add to them, if there are any. Called by all threads
// of a launch with kBlock threads per block.
template <int kBlock> __device__ __forceinline__ void clear_parts(const Params &p)
{
    if (p.splits == 1)
        return;
    const int64 quarters = (all_key_blocks(p) * 2 * kPartFloats + counter_words(p)) / 4;
    float4 *sums = reinterpret_cast<float4 *>(const_cast<float *>(p.rows)) - quarters;
#pragma unroll 1
    for (int64 i = int64(blockIdx.x) * kBlock + threadIdx.x; i < quarters; i += int64(gridDim.x) * kBlock)
        sums[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
}
