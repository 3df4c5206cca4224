#pragma once
#include "backward/dq_sums.cuh"
#include "backward/epilogue.cuh"
#include "hopper/bwd_barriers.cuh"
#include "hopper/bwd_no_dq_group.cuh"
#include "hopper/bwd_scores.cuh"
#include "hopper/stages.cuh"

// ---- consumers that divide the products of a tile (kByProduct) ------------------------------------------------------
//
// If rows have more than 128 columns, dK or dV of 64 keys fills the registers of a warpgroup. So a block has 64 keys,
// and each consumer warpgroup has its own products:
//
//     dV:  S^T = K Q^T      P^T = 2^(S^T - lse)          dV += P^T dO
//     dK:  dP^T = V dO^T    dS^T = P^T * (dP^T - delta)  dK += dS^T Q
//     dQ:  dQ = dS K, 64 columns at a time, which are added to those in memory
//
// Timeline of a tile, one row per warpgroup; each waits for its operands and for a free stage:
//
//     dV:  wait Q | S^T | P^T | put P^T | wait dO | dV += P^T dO
//     dK:  wait dO | dP^T            | wait P^T | dS^T | put dS^T | wait Q | dK += dS^T Q
//     dQ:                                              wait dS^T | dQ, 64 columns at a time, added in memory
//
// The dV warpgroup gives P^T to the dK warpgroup in fp32: each warp gives its accumulators to the warp that has the
// same elements of dP^T. (With dropout, a negative sign marks dropped elements.) The dK warpgroup gives dS^T to the dQ
// warpgroup as a tile in shared memory. There is one stage of P^T and two of dS^T, each with mbarriers `full` and
// `empty`; every warp that has written or read a stage arrives there. A warpgroup waits for a later one only if no
// stage is free. So warpgroups drift apart, and one computes P or dS while the tensor cores work for the others.
//
// Products for gradients that are not wanted are skipped. The exceptions are dV and dK with dropout (kAlways): branches
// around them would take registers, which spill.
constexpr int kDvGroup = 0, kDkGroup = 1, kDqGroup = 2;

// Arrives at an mbarrier when all lanes of the warp have written or read the stage.
__device__ __forceinline__ void hand_over(uint32 barrier, int lane)
{
    __syncwarp();
    if (lane == 0)
        barrier_arrive(barrier);
}

// Address of this lane's part of P^T in the stage; 16 keys per warp.
__device__ __forceinline__ uint32 p_place(uint32 smem, int warp, int lane)
{
    return smem + kPArea + warp * kQueryTiles * kPTileBytes + lane * 16;
}

__device__ __forceinline__ void put_p(const Scores &p, uint32 smem)
{
#pragma unroll
    for (int n = 0; n < kQueryTiles; n++)
        store_shared_floats(smem + n * kPTileBytes, p[0][n]);
}

__device__ __forceinline__ void get_p(Scores &p, uint32 smem)
{
#pragma unroll
    for (int n = 0; n < kQueryTiles; n++) {
        const float4 x = load_shared_floats(smem + n * kPTileBytes);
        p[0][n][0] = x.x, p[0][n][1] = x.y, p[0][n][2] = x.z, p[0][n][3] = x.w;
    }
}

// Sets dP^T to 0 where P^T has a negative sign, that is, where it was dropped.
__device__ __forceinline__ void drop_marked(Scores &dp, Scores &p)
{
    each_element(dp, [&](float &x, int m, int n, int e) {
        x = p[m][n][e] < 0.0f ? 0.0f : x;
        p[m][n][e] = fabsf(p[m][n][e]);
    });
}

// Marks dropped elements of P^T by a negative sign.
template <class Dropped> __device__ __forceinline__ void mark_dropped(const Dropped &dropout, Scores &p)
{
    if constexpr (kDropout)
        dropout.mark(p);
}

// The dV warpgroup: dV of the block's keys.
__device__ __forceinline__ void compute_dv(const Params &p, const BlockCoord &coord, const TileRange &tiles, Cursor at,
                                           int steps, const Barriers &barriers, Sums &dv)
{
    const uint32 smem = barriers.smem;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    Stage stage;
    uint32 p_parity = 0;
    Scores s;
    Dropout dropout(p, coord.first_key + warp * 16, lane);

    barrier_wait(barriers.k_full(), 0);
#pragma unroll 1
    for (; steps > 0; steps--) {
        const uint32 row_smem = smem + kLseArea + stage.index * kRowBytes + lane % 4 * 2 * 4;
        Fragments p_frag;

        barrier_wait(barriers.q(stage.index).full, stage.parity);
        start_scores(s, smem + kKArea, smem + kQArea + stage.index * kQTileBytes);
        wgmma_wait<0>();
        pin(s);
        Scores capped;
        make_p(s, capped, p, coord, tiles, at, warp * 16, row_smem, lane);
        pack_scores(p_frag, s);
        dropout.begin(p, coord.sequence(), coord.kv_head * p.group + at.head, at.tile * kBr, lane);
        if constexpr (kModified)
            multiply_derivatives(s, capped);
        mark_dropped(dropout, s);
        barrier_wait(barriers.exchange().empty, p_parity ^ 1);
        put_p(s, p_place(smem, warp, lane));
        hand_over(barriers.exchange().full, lane);
        if (lane == 0)
            barrier_arrive(barriers.q(stage.index).empty);
        dropout.mask(p_frag);
        if (kAlways || p.dv != nullptr) {
            barrier_wait(barriers.d_o(stage.index).full, stage.parity);
            start_sums(dv, p_frag, smem + kDoArea + stage.index * kQTileBytes);
            wgmma_wait<0>();
            pin(dv);
        }
        if (lane == 0)
            barrier_arrive(barriers.d_o(stage.index).empty);
        at.advance(tiles, tiles.end(p));
        stage.advance();
        p_parity ^= 1;
    }
}

// The dK warpgroup: dK of the block's keys, and dS^T for dQ.
__device__ __forceinline__ void compute_dk(const Params &p, const BlockCoord &coord, const TileRange &tiles, Cursor at,
                                           int steps, const Barriers &barriers, Sums &dk)
{
    const uint32 smem = barriers.smem;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    Stage stage;
    uint32 p_parity = 0;
    Scores s, dp;

    barrier_wait(barriers.v_full(), 0);
#pragma unroll 1
    for (; steps > 0; steps--) {
        const uint32 row_smem = smem + kDeltaArea + stage.index * kRowBytes + lane % 4 * 2 * 4;
        Fragments ds_frag;

        barrier_wait(barriers.d_o(stage.index).full, stage.parity);
        start_scores(dp, smem + kVArea, smem + kDoArea + stage.index * kQTileBytes);
        barrier_wait(barriers.exchange().full, p_parity);
        wgmma_wait<0>();
        pin(dp);
        get_p(s, p_place(smem, warp, lane));
        if constexpr (kDropout)
            drop_marked(dp, s);
        dp_to_ds(dp, s, row_smem);
        pack_scores(ds_frag, dp);
        hand_over(barriers.exchange().empty, lane);
        if (lane == 0)
            barrier_arrive(barriers.d_o(stage.index).empty);
        if (p.dq != nullptr) {
            barrier_wait(barriers.ds(stage.index).empty, stage.parity ^ 1);
            store_ds(ds_frag, smem + kScoreArea + stage.index * kScoreBytes, warp * 16, lane);
            fence_products();
            hand_over(barriers.ds(stage.index).full, lane);
        }
        if (kAlways || p.dk != nullptr) {
            barrier_wait(barriers.q(stage.index).full, stage.parity);
            start_sums(dk, ds_frag, smem + kQArea + stage.index * kQTileBytes);
            wgmma_wait<0>();
            pin(dk);
        }
        if (lane == 0)
            barrier_arrive(barriers.q(stage.index).empty);
        at.advance(tiles, tiles.end(p));
        stage.advance();
        p_parity ^= 1;
    }
}

// The dQ warpgroup: adds dS K of the block's keys to dQ.
__device__ __forceinline__ void compute_dq(const Params &p, const BlockCoord &coord, const TileRange &tiles, Cursor at,
                                           int steps, const Barriers &barriers)
{
    const uint32 smem = barriers.smem;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    Stage stage;

    barrier_wait(barriers.k_full(), 0);
#pragma unroll 1
    for (; steps > 0; steps--) {
        const int64 batch_head = int64(coord.batch) * p.heads_q + coord.kv_head * p.group + at.head;
        float *sum = p.dq_sum + (batch_head * p.q_tiles + at.tile) * kDqTile + warp * kColWarps * kDqWarpPart;

        barrier_wait(barriers.ds(stage.index).full, stage.parity);
#pragma unroll
        for (int part = 0; part < kColWarps; part++) {
            DqTile dq;
            start_dq(dq, smem + kScoreArea + stage.index * kScoreBytes, smem + kKArea + part * kDqColumnBytes);
            wgmma_wait<0>();
            pin(dq);
            if (part == kColWarps - 1 && lane == 0)
                barrier_arrive(barriers.ds(stage.index).empty);
            if (kDqInOrder && part == 0)
                await_turn(turn_counter(p, coord, batch_head, at.tile), 0, blocks_before(p, coord, at.tile), lane);
            add_dq(sum + part * kDqWarpPart, dq, lane);
        }
        if constexpr (kDqInOrder) {
            named_barrier(2 + kDqGroup, 128);  // all warps have added to dQ of the tile
            if (threadIdx.x % 128 == 0)
                count_up(turn_counter(p, coord, batch_head, at.tile));
        }
        at.advance(tiles, tiles.end(p));
        stage.advance();
    }
}

// The mainloop of one consumer warpgroup, and its epilogue.
__device__ __forceinline__ void compute_by_product(const Params &p, const BlockCoord &coord, const TileRange &tiles,
                                                   const Cursor &begin, int steps, const Barriers &barriers, int index,
                                                   int split)
{
    const int lane = threadIdx.x % 32, warp_key = threadIdx.x / 32 % 4 * 16;
    if (index == kDqGroup) {
        give_registers<kDqRegisters>();
        if (steps > 0 && p.dq != nullptr)
            compute_dq(p, coord, tiles, begin, steps, barriers);
        named_barrier_arrive(1, kWorkers);  // its warps have read their last K
        return;
    }
    take_registers<kGroupRegisters>();
    Sums sums = {};
    if (index == kDvGroup) {
        if (steps > 0)
            compute_dv(p, coord, tiles, begin, steps, barriers, sums);
    } else {
        if (steps > 0)
            compute_dk(p, coord, tiles, begin, steps, barriers, sums);
    }
    named_barrier(1, kWorkers);  // every warp has read its last K and V before dK and dV come into their place
    if (kSplit && p.splits > 1) {
        put_part(p, coord, split, index == kDvGroup, sums);
        return;
    }
    if (index == kDvGroup)
        write_rows(p.dv, p.dv_stride, p, coord, sums, value_scale(p), barriers.smem + kVArea, warp_key, 0, lane);
    else
        write_rows(p.dk, p.dk_stride, p, coord, sums, p.scale, barriers.smem + kKArea, warp_key, 0, lane);
}

// Kernels that divide the keys have this function (bwd_by_keys.cuh).
template <class... Any> __device__ __forceinline__ void compute_rows(const Any &...) {}
