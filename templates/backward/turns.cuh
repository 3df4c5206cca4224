#pragma once
#include "backward/dq_sums.cuh"
#include "features/window.cuh"

// ---- turns: dQ is summed in one order -----------------------------------------------------------------------
//
// Each tile of dQ has a counter of the blocks that have added to it, and a block adds when it has counted
// those with keys before its own. A block's keys come with a ticket, in the order in which blocks begin, and
// keys of one head have tickets in their order: whoever waits, waits for a block that runs already or is
// done. The one of them with the lowest ticket waits for nobody, so that there is always one that goes on.
//
// Tiles are visited from the last to the first, each block a little after the one before it: where a mask
// or a window hides tiles, blocks that begin together do so in tiles that lie apart already.
//
// With kLastKeysFirst it is the other way round: the last keys come first, and tiles are visited from the first that
// sees the block's keys on, where a mask lets no other block add before it. Blocks that begin together need not wait for
// each other.

// After the sums: a counter per tile, and the one of tickets.
__device__ __forceinline__ uint32 *turn_counters(const Params &p)
{
    const int64 tiles = int64(batches(p)) * p.heads_q * p.q_tiles;
    if constexpr (kVarlen)
        return reinterpret_cast<uint32 *>(p.dq_sum + int64(p.heads_q) * p.features.total_q * kDqWidth);
    else
        return reinterpret_cast<uint32 *>(p.dq_sum + tiles * kDqTile);
}

// A block's number, in all threads. smem: 4 bytes that nobody uses yet, and into which no bulk load comes: none of the
// threads fences what it wrote here.
__device__ __forceinline__ uint32 block_ticket(const Params &p, uint32 smem)
{
    if (p.dq == nullptr)
        return blockIdx.x;
    if (threadIdx.x == 0)
        store_shared_4(smem, take_ticket(turn_counters(p) + int64(batches(p)) * p.heads_q * p.q_tiles));
    __syncthreads();  // the ticket is there
    const uint32 ticket = __float_as_uint(load_shared_4(smem));
    __syncthreads();  // and read, before anything else comes into its place
    return ticket;
}

// How many blocks add to a tile of queries before the one with this tile of keys.
__device__ __forceinline__ uint32 blocks_before(const Params &p, int key_tile, int query_tile)
{
    if constexpr (kWindow != Window::kNone) {
        const int first_key = run_begin(p, query_tile * kBr + p.seq_k - p.seq_q);
        return key_tile - max(first_key, 0) / kBc;
    } else if constexpr (kLastKeysFirst) {
        // Those with keys after its own that some query of the tile sees.
        const int last_key = query_tile * kBr + kBr - 1 + p.seq_k - p.seq_q;
        return min((p.seq_k + kBc - 1) / kBc - 1, last_key / kBc) - key_tile;
    } else {
        return key_tile;
    }
}

// Wait for the others' turns. seen: what lane 0 has read of the counter a while ago. Only additions follow,
// and none is issued before the loop has ended: there is nothing that a fence could keep from being early.
__device__ __forceinline__ void await_turn(const uint32 *counter, uint32 seen, uint32 before, int lane)
{
    if (lane == 0)
        while (seen < before)
            seen = load_counter(counter);
    __syncwarp();  // no lane adds before it is the block's turn
}
