#pragma once
#include "backward/cursor.cuh"
#include "backward/turns.cuh"
#include "hopper/bwd_producer.cuh"

// ---- backward -----------------------------------------------------------------------------------------
//
// The kernel of bwd_sm90 (bwd_sm90.cu.in calls `backward`). One block computes kBc rows of dK and dV over all queries
// that see its keys, and adds to dQ. Each consumer warpgroup has 64 of these rows; the last warpgroup is the producer.
// Per tile of kBr queries:
//
//     S^T = K Q^T      P^T = 2^(S^T - lse)          dV += P^T dO
//     dP^T = V dO^T    dS^T = P^T * (dP^T - delta)  dK += dS^T Q     dQ += dS K
//
// Keys are rows of S^T, so P^T and dS^T are operands of dV and dK in the registers where they were computed. dS^T goes
// through shared memory for dQ only: each warpgroup computes a part of dQ from all keys.
//
// Timeline of a step; products run while the threads compute P and dS:
//
//     start S, dP | wait for S, P | start dV | wait for dP, dS | barrier: dS of all warps | start dQ, dK |
//     wait for dQ, add it | wait for dK
//
// Each stage of Q (with LSE) and of dO (with delta) has two mbarriers. The loads arrive at `full`; every warp that has
// read the stage arrives at `empty`.
//
// That is the form with dq=atomic (bwd_by_keys.cuh). With dq=bulk the copy engine adds dQ (bwd_dq_bulk.cuh), and with
// dq=group a third warpgroup computes it (bwd_dq_group.cuh). If rows have more than 128 columns, warpgroups divide the
// products instead (bwd_by_product.cuh).

// Number of tiles of queries that the block processes.
template <class Range>
__device__ __forceinline__ int steps_of(const Range &range, const Params &p, const TileRange &tiles)
{
    if constexpr (kSplit)
        return range.steps;
    else
        return max(tiles.end(p) - tiles.first, 0) * p.group;
}

// Returns a number that determines the block's work. If blocks wait for others, it is a ticket. smem: see draw_ticket.
__device__ __forceinline__ unsigned block_number(const Params &p, uint32 smem)
{
    if (kHeadBlocks && p.splits > 1)
        return draw_ticket([&] { return key_ticket(p); }, smem);
    return kDqInOrder ? block_ticket(p, smem) : blockIdx.x;
}

// The kernel; kThreads threads.
__device__ __forceinline__ void backward(const Params &all, const TensorMaps &maps)
{
    extern __shared__ __align__(1024) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    const Barriers barriers{smem};
    const int index = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    unsigned block = blockIdx.x;
    if constexpr (kHeadBlocks || kDqInOrder)
        block = block_number(all, smem + kScoreArea);
    const BlockCoord coord(all, kSplit && !kHeadBlocks ? block / all.splits : block, kHeadBlocks ? all.splits : 1);
    if (!kHeadBlocks || coord.split == 0)
        clear_unused_keys(all, coord);
    if (coord.is_empty())
        return;
    OwnParams p = coord.params(all);  // lengths and addresses are those of the block's sequence
    const TileRange tiles(p, coord);
    // Computed where it is needed, so that it takes no register in the mainloop.
    auto split = [&] { return kHeadBlocks ? unsigned(coord.split) : block % p.splits; };
    const QueryRange range(p, tiles, kSplit ? split() : 0);
    const Cursor begin = range.start(p, tiles);
    const int steps = steps_of(range, p, tiles);

    if (threadIdx.x == 0)
        barriers.init();
    __syncthreads();  // the barriers are there

    if (index == kGroups) {
        give_registers<kLoadRegisters>();
        const Loads loads{p, maps, barriers, coord};
        if constexpr (kCountsApart || kAddsApart) {
            // The same for all lanes, as the compiler knows: else loads spill.
            const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
            if (warp == kWarps + 1) {
                if (threadIdx.x % 32 == 0 && p.dq != nullptr)
                    loads.order_dq(tiles, begin, steps);
                return;
            }
        }
        if (threadIdx.x == kWorkers && steps > 0)
            loads.load_all(tiles, begin, steps);
        return;
    }
    if constexpr (kByProduct) {
        compute_by_product(p, coord, tiles, begin, steps, barriers, index, split());
    } else {
        if constexpr (kDqWarpgroup)
            if (index == kKeyGroups) {
                give_registers<kDqRegisters>();
                if (steps > 0 && p.dq != nullptr)
                    compute_dq_alone(p, coord, tiles, begin, steps, barriers);
                named_barrier_arrive(3, kWorkers);  // its warps have read their last K; clear_rows may use barrier 1
                return;
            }
        take_registers<kGroupRegisters>();
        Sums dk = {}, dv = {};
        if (steps > 0)
            compute_rows(p, coord, tiles, begin, steps, barriers, index, dk, dv);
        named_barrier(3, kWorkers);  // every warp has read its last K and V before dK and dV come into their place
        if (kSplit && p.splits > 1) {
            put_part(p, coord, split(), 0, dk);
            put_part(p, coord, split(), 1, dv);
            return;
        }
        const int lane = threadIdx.x % 32, warp_key = threadIdx.x / 32 * 16;
        write_rows(p.dk, p.dk_stride, p, coord, dk, p.scale, smem + kKArea, warp_key, 0, lane);
        write_rows(p.dv, p.dv_stride, p, coord, dv, value_scale(p), smem + kVArea, warp_key, 0, lane);
    }
}
