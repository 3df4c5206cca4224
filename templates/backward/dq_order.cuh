#pragma once
#include "backward/dq_sums.cuh"
#include "backward/turns.cuh"

// ---- dQ order: blocks add to a tile of dQ in a fixed order (kDqInOrder) ----------------------------------------
//
// Each tile of dQ has a counter of the blocks that have added to it. A block adds when all blocks with earlier keys
// have added. No deadlock: a block draws a ticket when it begins, and the ticket determines its keys. Keys of one head
// have ascending tickets, so a block waits only for blocks that are running or done. The running block with the lowest
// ticket waits for no other.
//
// Tiles are processed from the last to the first, each block a little after the one before it. If a mask or a window
// hides tiles, blocks that begin together start in different tiles anyway.
//
// With kLastKeysFirst the order is reversed: the last keys come first. Tiles are processed in ascending order, from the
// first that sees the block's keys; a mask lets no other block add there before it. So blocks that begin together need
// not wait for each other. But they are in ever more distant tiles, because shorter blocks begin and end earlier. So few
// heads are interleaved, and L2 holds all of them. The first keys come last, and these blocks are the longest. So the
// last few heads have the first keys first: no long block then runs alone (coord.cuh).

// The counters in the workspace, after the dQ sums: one per tile, and the ticket counter.
__device__ __forceinline__ uint32 *turn_counters(const Params &p)
{
    const int64 tiles = int64(batches(p)) * p.heads_q * p.q_tiles;
    if constexpr (kVarlen)
        return reinterpret_cast<uint32 *>(p.dq_sum + int64(p.heads_q) * p.features.total_q * kDqWidth);
    else
        return reinterpret_cast<uint32 *>(p.dq_sum + tiles * kDqTile);
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
