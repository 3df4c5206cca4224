#pragma once
#include "lib/form.cuh"

// ---- areas of shared memory -----------------------------------------------------------------------------------
//
// KeyTile: rows of K. If they are 8-bit integers, a column here is two of them, and whole k32 steps are filled.
// ValueTile: rows of V, likewise. If V is the first columns of K, its tiles are the tiles of K. If V is rounded to e4m3
// numbers, rows are columns of the tensor.
// OutputForm: rows of O at the end.
constexpr int kKeyColumns = kInt8Scores ? (kHeadDim + 31) / 32 * 16 : kHeadDim * kKvBytes / kElemBytes;
constexpr int kValueColumns = kFp8Values ? kBc / kElemBytes : kHeadDimV * kKvBytes / kElemBytes;
constexpr int kValueRows = kFp8Values ? kHeadDimV : kBc;
using KeyTile = FormOf<kKeyColumns>;
using ValueTile = Either<kVInK, RowTile, FormOf<kValueColumns>>::Type;
using OutputForm = TileForm<kVInK ? kHeadDimPadded : kHeadDimVPadded>;
// After the rows of a tile of K or V in 8 bits come their scales, with a gap after each 32 (kv8_scales.cuh).
constexpr int kScalesGap =
    KeyTile::kChunks < 32 ? (32 / KeyTile::kChunks + 3) / 4 * 4 : 4;  // the rows that a warp copies at once, at least 4
constexpr int kScaleBytes = kKv8 ? (kBc + (kBc - 1) / 32 * kScalesGap) * 4 : 0;
constexpr int kQTileBytes = kBr * kPitch;
constexpr int kKvTileBytes = kBc * KeyTile::kPitch + kScaleBytes;
constexpr int kVTileBytes = kVInK ? 0 : kValueRows * ValueTile::kPitch + kScaleBytes;

// Offsets of the areas. If Q is kept in registers, its tile is read once and shares space with V.
constexpr int kQArea = kQInRegisters ? kTeams * kKStages * kKvTileBytes : 0;
constexpr int kKArea = kQInRegisters ? 0 : kQTileBytes;
constexpr int kVArea = kKArea + kTeams * kKStages * kKvTileBytes;
constexpr int kVBytes = kTeams * kVStages * kVTileBytes;
// Partial sums of S of each warp, in fp32, if warps divide columns (sum_scores.cuh).
constexpr int kSumArea = kVArea + (kQInRegisters && kQTileBytes > kVBytes ? kQTileBytes : kVBytes);
// Products of the rows and the mean key, if K is rounded (int8_scores.cuh).
constexpr int kMeanArea = kSumArea + (kParts > 1 ? kTeams * kParts * kBr * kBc * 4 : 0);
constexpr int kTileBytes = kMeanArea + (kInt8Scores ? kBr * 4 : 0);
// After the mainloop: the teams' rows of O in fp32 (epilogue_partial.cuh), maxima and sums.
constexpr int kMergeBytes = kBr * (kTeams * (kHeadDimV * 4 + (160 - kHeadDimV * 4 % 128) % 128 + 8) + kMerges * 4);
constexpr int kSmemBytes = kSplit && kMergeBytes > kTileBytes ? kMergeBytes : kTileBytes;
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");

// If keys are divided, kernels are short and should wait for memory once. So Q is loaded through the one V tile of the
// first team that no copy uses yet, and the other copies are issued before Q is read.
constexpr bool kQBehind = kSplit && kQInRegisters && kJoint && kQTileBytes <= kVTileBytes;

// Address of the stage of a tile of K or V. A team's tiles are kTeams apart.
__device__ __forceinline__ uint32 k_stage(uint32 smem, int team, int tile)
{
    return smem + kKArea + (team * kKStages + tile / kTeams % kKStages) * kKvTileBytes;
}

__device__ __forceinline__ uint32 v_stage(uint32 smem, int team, int tile)
{
    if constexpr (kVInK)
        return k_stage(smem, team, tile);
    else
        return smem + kVArea + (team * kVStages + tile / kTeams % kVStages) * kVTileBytes;
}
