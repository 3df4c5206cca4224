#pragma once
#include "backward/dq_sums.cuh"
#include "backward/epilogue.cuh"
#include "hopper/bwd_barriers.cuh"
#include "hopper/bwd_scores.cuh"
#include "hopper/stages.cuh"

// ---- what a consumer warpgroup of 64 keys does with a tile of queries ----------------------------------------------
//
// The loops of bwd_by_keys.cuh and bwd_dq_group.cuh consist of these steps.

// Clears the rows of Q, dO, LSE and delta after a packed sequence's end, before the tile is read.
__device__ __forceinline__ void clear_after_end(const Params &p, const Barriers &barriers, const Stage &stage,
                                                const Cursor &at, uint32 q_smem, uint32 do_smem)
{
    const uint32 smem = barriers.smem;
    const int rows = p.seq_q - at.tile * kBr;
    if (rows < kBr) {
        barrier_wait(barriers.do_full(stage.index), stage.parity);
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

// Keeps a value in its register. Else the compiler reads the thread's number anew in the loop, and such a read waits
// behind all wgmma that the warp has issued.
__device__ __forceinline__ void keep(int &x)
{
    asm volatile("" : "+r"(x));
}

// Waits for Q and dO, reads LSE, and starts S^T = K Q^T and dP^T = V dO^T. Accesses to shared memory and to mbarriers
// wait behind all wgmma that the warp has issued, so LSE is read before these.
__device__ __forceinline__ void start_products(Scores &s, Scores &dp, RowValues &lse, const Params &p,
                                               const Barriers &barriers, const Stage &stage, const Cursor &at,
                                               uint32 k_rows, uint32 v_rows, uint32 q_smem, uint32 do_smem,
                                               uint32 row_smem)
{
    barrier_wait(barriers.q_full(stage.index), stage.parity);
    if constexpr (kVarlen)
        clear_after_end(p, barriers, stage, at, q_smem, do_smem);
    barrier_wait(barriers.do_full(stage.index), stage.parity);
    load_row_values(lse, row_smem);
    start_scores(s, k_rows, q_smem);
    start_scores(dp, v_rows, do_smem);
}

// Turns S^T, which is there, into P^T, and reads delta. rows: LSE before, delta after.
__device__ __forceinline__ void make_p_fragments(Scores &s, Scores &capped, RowValues &rows, Fragments &p_frag,
                                                 const Dropout &dropout, const Params &p, const BlockCoord &coord,
                                                 const TileRange &tiles, const Cursor &at, int warp, int lane,
                                                 uint32 row_smem)
{
    make_p(s, capped, p, coord, tiles, at, warp * 16, rows, lane);
    pack_scores(p_frag, s);
    dropout.mask(p_frag);
    load_row_values(rows, row_smem + kDeltaArea - kLseArea);
}

// Turns dP^T, which is there, into dS^T.
__device__ __forceinline__ void make_ds_fragments(Scores &s, Scores &dp, const Scores &capped, const RowValues &delta,
                                                  Fragments &ds_frag, const Dropout &dropout)
{
    pin(dp);
    if constexpr (kSoftcap)
        multiply_slopes(s, capped);
    dropout.mask(dp);
    dp_to_ds(dp, s, delta);
    pack_scores(ds_frag, dp);
}
