#pragma once
#include "lib/tile.cuh"

// ---- the areas of shared memory -------------------------------------------------------------------
//
// Rows of V, and of O at the end. If V is the first columns of K, its tiles are those of K.
using ValueTile = TileForm<kVInK ? kHeadDimPadded : kHeadDimVPadded>;
constexpr int kQTileBytes = kBr * kPitch;
constexpr int kKvTileBytes = kBc * kPitch;
constexpr int kVTileBytes = kVInK ? 0 : kBc * ValueTile::kPitch;

// Offsets of the areas. Q in registers is read once, so its tile shares space with V.
constexpr int kQArea = kQInRegisters ? kTeams * kKStages * kKvTileBytes : 0;
constexpr int kKArea = kQInRegisters ? 0 : kQTileBytes;
constexpr int kVArea = kKArea + kTeams * kKStages * kKvTileBytes;
constexpr int kVBytes = kTeams * kVStages * kVTileBytes;
// What each warp has of S, in fp32, where warps divide columns (sum_scores.cuh).
constexpr int kSumArea = kVArea + (kQInRegisters && kQTileBytes > kVBytes ? kQTileBytes : kVBytes);
constexpr int kTileBytes = kSumArea + (kParts > 1 ? kTeams * kParts * kBr * kBc * 4 : 0);
// Afterwards the teams' results: rows of O in fp32 (epilogue_partial.cuh), maxima and sums.
constexpr int kMergeBytes = kTeams * kBr * (kHeadDimV * 4 + (160 - kHeadDimV * 4 % 128) % 128 + 8);
constexpr int kSmemBytes = kSplit && kMergeBytes > kTileBytes ? kMergeBytes : kTileBytes;
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");

// Where keys are divided, short kernels wait for memory once: Q passes through the one V tile of the first team that no
// copy is on its way to yet, so that the others are on theirs before it is read.
constexpr bool kQBehind = kSplit && kQInRegisters && kJoint && kQTileBytes <= kVTileBytes;

// Where a tile of K or V lies while it is in shared memory. A team's tiles are kTeams apart.
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
