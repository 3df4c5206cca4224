#pragma once
#include "backward/dq_sums.cuh"

// ---- dQ order: blocks add to a tile of dQ in a fixed order (kDqInOrder) ----------------------------------------
//
// Each tile of dQ has a counter of the blocks that have added to it. A block adds when all blocks with earlier keys
// have added. No deadlock: a block draws a ticket when it begins, and the ticket determines its keys. Keys of one head
// have ascending tickets, so a block waits only for blocks that are running or done. The running block with the lowest
// ticket waits for no other.
//
// Tiles are processed from the last to the first, each block a little after the one before it. Blocks with a causal mask
// also begin with the last tile together, and the longest blocks come first. If blocks with the last keys came first,
// from their first tile on, none would wait for another. But those that run together would be in different tiles, and
// more and more so, until the L2 cache no longer holds what they share.
//
// With kHeadBlocks, blocks also add to dK and dV in a fixed order, of their query heads (split.cuh). The deadlock is
// excluded likewise: blocks with the same keys and earlier heads have lower tickets.

// The counters in the workspace, after the dQ sums: one per tile, and the ticket counter.
__device__ __forceinline__ uint32 *turn_counters(const Params &p)
{
    const int64 tiles = int64(batches(p)) * p.heads_q * p.q_tiles;
    if constexpr (kVarlen)
        return reinterpret_cast<uint32 *>(p.dq_sum + int64(p.heads_q) * p.features.total_q * kDqWidth);
    else
        return reinterpret_cast<uint32 *>(p.dq_sum + tiles * kDqTile);
}

// Draws the block's ticket and returns it in all threads. smem: 4 bytes that are not yet used, and that no TMA load
// writes, because no thread fences this store. counter: that of the tickets, if it is not the one after the dQ sums.
__device__ __forceinline__ uint32 block_ticket(const Params &p, uint32 smem, uint32 *counter = nullptr)
{
    if (p.dq == nullptr && counter == nullptr)
        return blockIdx.x;
    if (threadIdx.x == 0) {
        if (counter == nullptr)
            counter = turn_counters(p) + int64(batches(p)) * p.heads_q * p.q_tiles;
        store_shared_4(smem, take_ticket(counter));
    }
    __syncthreads();  // the ticket is there
    const uint32 ticket = __float_as_uint(load_shared_4(smem));
    __syncthreads();  // and read, before anything else comes into its place
    return ticket;
}

// Waits for the block's turn. seen: the counter as lane 0 has read it earlier. No fence is needed: only additions
// follow, and none is issued before the loop ends.
__device__ __forceinline__ void await_turn(const uint32 *counter, uint32 seen, uint32 before, int lane)
{
    if (lane == 0)
        while (seen < before)
            seen = load_counter(counter);
    __syncwarp();  // no lane adds before it is the block's turn
}
