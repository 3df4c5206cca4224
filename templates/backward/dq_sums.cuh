#pragma once
#include "backward/coord.cuh"
#include "lib/ptx.cuh"

// ---- dQ sums: fp32 sums over blocks, in the workspace -----------------------------------------------------------
//
// A tile of dQ is stored in the order of the fragments of the warps that add to it, so each addition of a warp fills
// whole sectors. A fragment has 128 numbers: [lane][4] if four numbers can be added at once, else [4][lane]. One file
// alone knows the rows and columns of a fragment and the order of fragments: backward/dq_fragments.cuh, or
// hopper/dq_columns.cuh if warps compute dQ transposed. It also has the place of what a thread converts (SummedPart).
//
// Packed sequences share the workspace: each has exactly its own rows, in groups of kDqGroupRows. A group that the
// sequence's end cuts is [row][column].
#if __CUDA_ARCH__ >= 900
constexpr bool kAddFour = true;
#else
constexpr bool kAddFour = false;
#endif
constexpr int kDqFragment = 128;
constexpr int kDqWidth = 16 * kDqPairs * kColWarps;  // numbers per row
constexpr int kDqTile = kBr * kDqWidth;

constexpr bool kDqDirect = false;  // sums are in the workspace

template <int kBlockThreads, int kBlockRows, int kLanes, class... Any>
__device__ __forceinline__ void clear_dq(const Any &...)
{
}

// Rows of the sums over all heads.
__device__ __forceinline__ int64 dq_rows(const Params &p, int64 all_rows)
{
    return kVarlen ? int64(p.heads_q) * p.features.total_q : all_rows;
}

// 16 sums in the registers of the thread that converts them: 8 columns of two rows.
struct DqNumbers {
    float upper[8], lower[8];
};
