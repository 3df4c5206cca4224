#pragma once
#include "backward/loads.cuh"
#include "backward/mainloop.cuh"
#include "backward/dq_step.cuh"
#include "backward/epilogue.cuh"

// ---- backward -----------------------------------------------------------------------------------------
//
// The kernel of bwd_sm75 and bwd_sm80 (entry.cu.in calls `backward`). One block computes kBc rows of dK and dV, which
// stay in registers, over all queries that see its keys, and adds to dQ. Per tile of kBr queries:
//
//     S^T = K Q^T      P^T = 2^(S^T - lse)          dV += P^T dO
//     dP^T = V dO^T    dS^T = P^T * (dP^T - delta)  dK += dS^T Q     dQ += dS K
//
// Variants:
//
//     kSplit       several blocks have the same keys, and each a part of these queries (split.cuh)
//     kDqBlock     a block does all tiles of keys of a head, one after the other (dq_block.cuh)
//     kDqSeparate  separate blocks compute dQ (dq_separate.cuh)
//
// Keys are rows of S^T, so P^T and dS^T are A fragments of dV and dK where they were computed. Warps are arranged as
// kKeyWarps x kQueryWarps, over S^T and over (keys, columns) of dK and dV. Warps with the same keys exchange results:
// P^T as fragments, and dS^T through the tile that dQ needs as well.
//
// The prologue loads K, V and the first tiles (loads.cuh). The step of tile t (`step`) is in mainloop.cuh and
// dq_step.cuh; the next tile is copied meanwhile. With two barriers all warps begin a tile together:
//
//   wait, barrier | S^T P^T dV dP^T dS^T dK, part by part | barrier | others' dV, dK |           dQ | store t + 1
//   two stages:   | copy Q, dO (t + 1) ........................................................
//   one stage:                                                                 barrier | copy ....
//
// With one barrier, warps may be a tile apart:
//
//   S^T P^T dV dP^T dS^T dK, part by part | wait, barrier | others' dV, dK | dQ | store t + 2
//                                                         | copy Q, dO (t + 2) ....
//
// "store": tiles that pass through registers (SM 7.5) go to shared memory; by cp.async there is nothing to store. With
// one stage, the barrier before the copy is there only if kQueryWarps > 1.
//
// "others'" means of the warps with the same keys. The comment at each barrier says what it orders. The epilogue writes
// dK and dV (epilogue.cuh).
//
// Each feature changes one place, here and in the separate blocks of dQ:
//
//     which tiles are processed, which are masked    tiles.cuh, and the loop over them
//     how scores become P^T                          compute_p
//     what is dropped: of P^T for dV, and of dP^T    dropout.cuh
//     the derivative of the scores                   a factor of dS^T only
//     how a row begins and ends                      its LSE and delta (delta.cuh)

// Writes dK and dV, or this block's partial sums of them.
__device__ __forceinline__ void write_keys(const Params &p, const BlockCoord &coord, const WarpCoord &own,
                                           const SumOfKeys &dk, const SumOfValues &dv, unsigned block, uint32 smem)
{
    if constexpr (kSplit)
        if (p.splits > 1) {
            put_part(p, coord, block % p.splits, 0, dk);
            put_part(p, coord, block % p.splits, 1, dv);
            return;
        }
    write_rows(p.dk, p.dk_stride, p, coord, dk, p.scale, smem + kKArea, own.key, own.query_warp, own.lane);
    write_rows<ValueTile, kHeadDimV>(p.dv, p.dv_stride, p, coord, dv, value_scale(p), smem + kVArea, own.key,
                                     own.query_warp, own.lane);
}

__device__ __forceinline__ void key_block(const Params &all, uint32 smem, unsigned block)
{
    const WarpCoord own;
    if constexpr (kDqInOrder)
        block = block_ticket(all, smem);
    const BlockCoord coord(all, kSplit ? block / all.splits : block);
    uint32 *counter = nullptr;  // with kDqInOrder: counter of the dQ tile that was added to last
    clear_unused_keys(all, coord);
    if (coord.is_empty())
        return;
    OwnParams p = coord.params(all);  // lengths and addresses are those of the block's sequence
    const TileRange tiles(p, coord);
    const QueryRange range(p, tiles, kSplit ? block % p.splits : 0);

    const LaneOffsets offsets(own.lane);
    SumOfKeys dk = {};
    SumOfValues dv = {};

    if (range.has_some(p, tiles)) {
        const int first_head = coord.kv_head * p.group;
        QueryFills fills;
        load_keys(p, coord, smem);
        Cursor at = range.start(p, tiles);
        int stage = 0, score_stage = 0;
        begin_queries(fills, p, coord, tiles, range, first_head, smem, at);
        Dropout dropout(p, coord.first_key + own.key, own.lane);
        auto step = [&](auto masked) {
            constexpr bool kMasked = decltype(masked)::value;
            const TileAreas areas(smem, stage, score_stage, own, offsets);
            const int next_stage = stage_ahead(stage);
            if constexpr (kBarriers == 2) {
                fill_wait<0>();
                __syncthreads();  // Q, dO and rows are complete (K and V too); the areas of the tile before are free
                if constexpr (kStages == 2)
                    issue_queries(fills, p, coord, range, first_head, smem, after(at, kAhead, p, tiles), next_stage);
            }

            const Terms terms(p, coord.batch, first_head + at.head);
#pragma unroll 1
            for (int part = 0; part < kParts; part++)
                step_of_part<kMasked>(p, coord, terms, dropout, own, offsets, areas, at, first_head, smem, part, dk,
                                      dv);
            if constexpr (kBarriers == 1)
                fill_wait<0>();
            // P^T and dS^T are complete; with one query warp, Q and dO are read. With one barrier per tile: the next
            // tile is complete; the tile before, its P^T and dS^T are read.
            __syncthreads();
            if (kDqInOrder && counter != nullptr && threadIdx.x == 0)
                count_up(counter);  // all warps have added to dQ of the tile before
            if constexpr (kBarriers == 1)
                issue_queries(fills, p, coord, range, first_head, smem, after(at, kAhead, p, tiles), next_stage);

            add_others(own, offsets, areas, dk, dv);
            if constexpr (kStages == 1) {
                if constexpr (kQueryWarps > 1)
                    __syncthreads();  // Q and dO are read before the next come into their place
                issue_queries(fills, p, coord, range, first_head, smem, after(at, kAhead, p, tiles), next_stage);
            }

            if (!kDqSeparate && p.dq != nullptr)
                add_tile_to_dq(p, coord, own, offsets, areas, at, first_head, smem, counter);
            store_queries(fills, p, coord, range, first_head, smem, after(at, kAhead, p, tiles), next_stage);
            at.advance(tiles, tiles.end(p));
            stage = stage + 1 == kStages ? 0 : stage + 1;
            if constexpr (kScoreStages == 2)
                score_stage ^= 1;
        };

        if constexpr (kOneLoop) {
            // A third loop, or a separate second one, would take registers, which spill.
#pragma unroll 1
            while (range.has(p, at))
                if (at.tile < tiles.unmasked || (kWindow != Window::kNone && at.tile >= tiles.masked))
                    step(Bool<true>{});
                else
                    step(Bool<false>{});
        } else {
#pragma unroll 1
            while (at.head < p.group) {
                const int head = at.head;
#pragma unroll 1
                while (at.head == head && (kLastTileFirst ? at.tile >= tiles.unmasked : at.tile < tiles.unmasked))
                    step(Bool<!kLastTileFirst>{});
#pragma unroll 1
                while (at.head == head)
                    step(Bool<kLastTileFirst>{});
            }
        }
    }
    if constexpr (kDqBlock)
        for (int head = 0; head < p.group; head++)
            clear_unseen(p, coord.batch, coord.kv_head * p.group + head, tiles.first, tiles.end(p));
    __syncthreads();  // every warp has read its last K and V before dK and dV come into their place
    if (kDqInOrder && counter != nullptr && threadIdx.x == 0)
        count_up(counter);
    write_keys(p, coord, own, dk, dv, block, smem);
}

// The kernel if dQ has no separate blocks; kThreads threads.
__device__ __forceinline__ void backward(const Params &p)
{
    extern __shared__ __align__(128) char shared[];
    const uint32 smem = static_cast<uint32>(__cvta_generic_to_shared(shared));
    if constexpr (kDqBlock) {
        clear_sums(p, blockIdx.x);
#pragma unroll 1
        for (int tile = 0; tile < p.k_tiles; tile++) {
            if (tile > 0)
                __syncthreads();  // dK and dV are written: K and V are loaded into the same area
            key_block(p, smem, blockIdx.x * p.k_tiles + tile);
        }
    } else {
        key_block(p, smem, blockIdx.x);
    }
}
