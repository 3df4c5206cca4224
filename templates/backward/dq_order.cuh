#pragma once
#include "backward/turns.cuh"

// ---- dQ order: blocks add to a tile of dQ in a fixed order (kDqInOrder) ----------------------------------------
//
// Each tile of dQ has a counter of the blocks that have added to it. A block adds when all blocks with earlier keys
// have added.
//
// No block waits for ever. A block draws a ticket when it begins, and the ticket determines its keys. Keys of one head
// have ascending tickets, so a block waits only for blocks that are running or done. The running block with the lowest
// ticket waits for no other.
//
// A block processes tiles from the last to the first, and reaches each tile a little after the block with the keys
// before. If a mask or a window hides tiles, blocks that begin together start in different tiles.
//
// With kLastKeysFirst, which is for causal masks, the order is reversed: blocks with the last keys begin first.
//
// - A block processes tiles in ascending order. Its first tile is the first one that sees its keys. No block with later
//   keys adds to that tile, so blocks that begin together do not wait for each other.
// - Blocks of one head process tiles that are far apart. So that L2 holds all of Q and dO that they read, few heads are
//   interleaved (kLeastHeads).
// - The blocks with the first keys begin last, and have the most tiles. So the last heads have the opposite order
//   (coord.cuh): otherwise the last blocks of the grid would be long ones, which run alone.

// The counters in the workspace, after the dQ sums: one per tile, and the ticket counter.
__device__ __forceinline__ uint32 *turn_counters(const Params &p)
{
    const int64 tiles = int64(batches(p)) * p.heads_q * p.q_tiles;
    if constexpr (kVarlen)
        return reinterpret_cast<uint32 *>(p.dq_sum + int64(p.heads_q) * p.features.total_q * kDqWidth);
    else
        return reinterpret_cast<uint32 *>(p.dq_sum + tiles * kDqTile);
}

// The counter of a tile of dQ. batch_head: b * heads + h.
template <class Coord>
__device__ __forceinline__ uint32 *turn_counter(const Params &p, const Coord &coord, int64 batch_head, int tile)
{
    return turn_counters(p) + batch_head * p.q_tiles + tile + coord.first_q_tile;
}

// Draws the block's ticket (turns.cuh).
__device__ __forceinline__ uint32 block_ticket(const Params &p, uint32 smem)
{
    if (p.dq == nullptr)
        return blockIdx.x;
    return draw_ticket([&] { return turn_counters(p) + int64(batches(p)) * p.heads_q * p.q_tiles; }, smem);
}

// Waits for the block's turn.
__device__ __forceinline__ void await_turn(const uint32 *counter, uint32 seen, uint32 before, int lane)
{
    await_count(counter, seen, before, lane);
}
