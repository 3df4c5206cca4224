#pragma once
#include "lib/ptx.cuh"

// ---- blocks that add to sums in a fixed order -----------------------------------------------------------------------
//
// Each sum has a counter of the blocks that have added to it. A block waits until the counter has reached the number of
// blocks that come before it. Which block comes first is decided by tickets: a block draws one when it begins, and the
// ticket determines its work. A block with a lower ticket has begun earlier, so it is running or done when others wait
// for it.

// Draws the block's ticket and returns it in all threads. counter(): address of the counter, computed by one thread.
// smem: 4 bytes that nothing uses yet. No TMA load may write there later: that would need a fence after this store.
template <class Counter> __device__ __forceinline__ uint32 draw_ticket(Counter counter, uint32 smem)
{
    if (threadIdx.x == 0)
        store_shared_4(smem, take_ticket(counter()));
    __syncthreads();  // the ticket is there
    const uint32 ticket = __float_as_uint(load_shared_4(smem));
    __syncthreads();  // and read, before anything else comes into its place
    return ticket;
}

// Waits until `before` blocks have added. seen: the counter as lane 0 has read it earlier. No fence is needed after the
// wait, because what follows are additions, which are issued when the loop has ended.
__device__ __forceinline__ void await_count(const uint32 *counter, uint32 seen, uint32 before, int lane)
{
    if (lane == 0)
        while (seen < before)
            seen = load_counter(counter);
    __syncwarp();  // no lane adds before it is the block's turn
}
