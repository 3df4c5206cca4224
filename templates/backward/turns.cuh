#pragma once
#include "lib/ptx.cuh"

// ---- blocks that add to sums in a fixed order ------------------------------------------------------------------------
//
// A counter counts the blocks that have added to a sum. A block draws a ticket when it begins, and the ticket determines
// its work. So a block that waits for lower tickets waits for blocks that are running or done.

// Draws the block's ticket and returns it in all threads. counter(): address of the counter, computed by one thread.
// smem: 4 bytes that are not yet used, and that no TMA load writes, because no thread fences this store.
template <class Counter> __device__ __forceinline__ uint32 draw_ticket(Counter counter, uint32 smem)
{
    if (threadIdx.x == 0)
        store_shared_4(smem, take_ticket(counter()));
    __syncthreads();  // the ticket is there
    const uint32 ticket = __float_as_uint(load_shared_4(smem));
    __syncthreads();  // and read, before anything else comes into its place
    return ticket;
}

// Waits until `before` blocks have added. seen: the counter as lane 0 has read it earlier. No fence is needed: only
// additions follow, and none is issued before the loop ends.
__device__ __forceinline__ void await_count(const uint32 *counter, uint32 seen, uint32 before, int lane)
{
    if (lane == 0)
        while (seen < before)
            seen = load_counter(counter);
    __syncwarp();  // no lane adds before it is the block's turn
}
