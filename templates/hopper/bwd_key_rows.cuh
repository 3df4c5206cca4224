#pragma once
#include "backward/dq_sums.cuh"
#include "backward/epilogue.cuh"
#include "hopper/bwd_barriers.cuh"
#include "hopper/bwd_scores.cuh"
#include "hopper/stages.cuh"

// ---- what a consumer warpgroup of 64 keys does with a tile of queries ----------------------------------------------
//
// The loops of bwd_dq_group.cuh and bwd_dq_bulk.cuh consist of these steps; bwd_by_keys.cuh has some of its own.
//
// If a warp has issued wgmma, its accesses to shared memory and to mbarriers wait until the tensor cores have taken
// these. So each step reads what it needs from there before its products are started. dS^T may wait
// (bwd_dq_group.cuh).

// Clears the rows of Q, dO, LSE and delta after a packed sequence's end, before the tile is read.
__device__ __forceinline__ void clear_after_end(const Params &p, const Barriers &barriers, const Stage &stage,
                                                const Cursor &at, uint32 q_smem, uint32 do_smem)
{
    const uint32 smem = barriers.smem;
    const int rows = p.seq_q - at.tile * kBr;
    if (rows < kBr) {
        barrier_wait(barriers.d_o(stage.index).full, stage.parity);
        hide_rows(smem + kLseArea + stage.index * kRowBytes, smem + kDeltaArea + stage.index * kRowBytes, rows);
        clear_rows<kBr>(q_smem, do_smem, rows);
    }
}

// Arrives at an mbarrier when all lanes of the warp have written or read the stage.
__device__ __forceinline__ void hand_over(uint32 barrier, int lane)
{
    __syncwarp();
    barrier_arrive_by(lane, barrier);
}

// Keeps a value in its register. Otherwise the compiler reads the thread's number again in the loop, and that read
// waits.
__device__ __forceinline__ void keep(int &x)
{
    asm volatile("" : "+r"(x));
}

// What a thread keeps in registers for its 64 keys. Members are read once, before the loop.
struct OwnKeys {
    uint32 k_rows, v_rows;  // the warpgroup's rows of K and V
    int warp, lane;
    int place;  // of the lane in a tile of dS^T

    __device__ __forceinline__ OwnKeys(uint32 smem, int group)
        : k_rows(smem + kKArea + group * kGroupKeys * kPageRowBytes), v_rows(k_rows + kVArea - kKArea),
          warp(threadIdx.x / 32), lane(threadIdx.x % 32), place(ds_place(warp * 16, lane))
    {
        keep(lane);
        keep(place);
    }
};

// Waits for K and V.
__device__ __forceinline__ void await_keys(const Params &p, const BlockCoord &coord, const Barriers &barriers)
{
    barrier_wait(barriers.k_full(), 0);
    barrier_wait(barriers.v_full(), 0);
    if constexpr (kVarlen)
        clear_rows<kBc>(barriers.smem + kKArea, barriers.smem + kVArea, p.seq_k - coord.first_key);
}

// Begins dropout of a tile, beside its products. ptxas moves code that is not in a branch after the wait for these.
__device__ __forceinline__ void begin_dropout(Dropout &dropout, const Params &p, const BlockCoord &coord, int head,
                                              const Cursor &at, int lane)
{
    if constexpr (kDropout)
        if (p.features.drop_bound != 0)  // always true
            dropout.begin(p, coord.sequence(), head, at.tile * kBr, lane);
}

// Waits for a tile of Q and dO.
__device__ __forceinline__ void await_tile(const Params &p, const Barriers &barriers, const Stage &stage,
                                           const Cursor &at)
{
    const uint32 smem = barriers.smem;
    barrier_wait(barriers.q(stage.index).full, stage.parity);
    barrier_wait(barriers.d_o(stage.index).full, stage.parity);
    if constexpr (kVarlen)
        clear_after_end(p, barriers, stage, at, smem + kQArea + stage.index * kQTileBytes,
                        smem + kDoArea + stage.index * kQTileBytes);
}

// Turns S^T, which is there, into P^T; and dP^T, which is under way, into dS^T. Starts dV between them, or leaves it to
// the caller (kDvLate). rows: receives delta in place of LSE.
__device__ __forceinline__ void make_scores(Scores &s, Scores &dp, RowValues &rows, Fragments &p_frag,
                                            Fragments &ds_frag, Sums &dv, const Dropout &dropout, const Params &p,
                                            const BlockCoord &coord, const TileRange &tiles, const Cursor &at, int warp,
                                            int lane, uint32 row_smem, uint32 do_smem)
{
    Scores capped;
    make_p(s, capped, p, coord, tiles, at, warp * 16, rows, lane);
    pack_scores(p_frag, s);
    dropout.mask(p_frag);
    load_row_values(rows, row_smem + kDeltaArea - kLseArea);
    if constexpr (!kDvLate)
        start_sums(dv, p_frag, do_smem);
    wgmma_wait<kDvLate ? 0 : 1>();  // dP^T is there, and dK of the tile before
    pin(dp);
    if constexpr (kModified)
        multiply_derivatives(s, capped);
    dropout.mask(dp);
    dp_to_ds(dp, s, rows);
    pack_scores(ds_frag, dp);
}

// Puts dS^T of a warp's keys into its stage. place: of the lane in the tile.
__device__ __forceinline__ void put_ds(const Fragments &ds, const Barriers &barriers, const Stage &stage, int place,
                                       int lane)
{
    barrier_wait(barriers.ds(stage.index).empty, stage.parity ^ 1);
    store_ds_at(ds, barriers.smem + kScoreArea + stage.index * kScoreBytes + place);
    fence_products();
    hand_over(barriers.ds(stage.index).full, lane);
}

// The empty policy: these kernels do not divide the products (bwd_by_product.cuh).
template <class... Any> __device__ __forceinline__ void compute_by_product(const Any &...) {}
