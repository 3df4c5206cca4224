#pragma once
#include "lib/types.cuh"

// ---- derived constants -----------------------------------------------------------------------------------------
constexpr int kStages = 2;  // stages of K
constexpr int kParts = 2;   // consumer warpgroups: both have all rows, each half of O's columns
constexpr int kTeams = 1;
constexpr bool kSplit = true, kPackedHeads = true, kVInK = true;
constexpr int kBr = 64;  // query rows per block: M of wgmma
constexpr int kThreads = kParts * 128;
constexpr int kFeedThreads = 128;  // the producer warpgroup
constexpr int kTeamThreads = kThreads;
constexpr int kRowTiles = 1;             // m16 row tiles per warp
constexpr int kOwnKeys = kBc / kParts;   // keys of a tile for which a warpgroup computes S
constexpr int kColTiles = kOwnKeys / 8;  // n8 column tiles of S
constexpr int kHeadDimVPadded = kHeadDimV;
constexpr int kOutTiles = kHeadDimV / (8 * kParts);  // n8 column tiles of O
constexpr int kDepth = kHeadDim / 16;                // k16 steps of S = Q K^T
constexpr int kPages = kHeadDim / 64;                // pages of 64 columns per tile

// Registers of a thread that copies, and of one that multiplies: the three warpgroups' threads share 504. With look-ups
// of pages or lengths, a thread that copies needs more. Then a thread that multiplies keeps fewer k16 steps of Q.
constexpr bool kLooksUp = kPaged || kSeqused;
constexpr int kFeedRegisters = kLooksUp ? 40 : 24, kProductRegisters = (504 - kFeedRegisters) / 16 * 8;
constexpr int kQSteps = kLooksUp ? 8 : 10;

static_assert(kHeadDim % 64 == 0, "pages are whole");
static_assert(kHeadDimV % (64 * kParts) == 0 && kHeadDimV <= 256 * kParts, "so are those of a warpgroup's V");
static_assert(kOwnKeys % 32 == 0 && kBc <= 256, "copies take 32 rows at a time");
static_assert(kFeedRegisters + kParts * kProductRegisters <= (kParts + 1) * (65536 / (kThreads + kFeedThreads) / 8 * 8),
              "all warpgroups together have no more registers than at launch");

// ---- shared memory -----------------------------------------------------------------------------
//
// Tiles are pages of 64 columns, [page][row][64]: rows of 128 bytes, whose 16-byte chunks are permuted by row % 8. This
// is the 128-byte swizzle that wgmma reads.
constexpr int kPageRowBytes = 128;
constexpr int kQPageBytes = kBr * kPageRowBytes;
constexpr int kTilePageBytes = kBc * kPageRowBytes;
constexpr int kKArea = kPages * kQPageBytes;  // after Q
constexpr int kTileBytes = kPages * kTilePageBytes;
// After the tiles: P of each warpgroup in 16 bits, and two numbers of each thread.
constexpr int kExchange = kKArea + kStages * kTileBytes;
constexpr int kBarriers = kExchange + kThreads * (kOwnKeys * kElemBytes * 16 / 32 + 8);  // two mbarriers per stage
constexpr int kTilesEnd = kBarriers + kStages * 16;
// After the mainloop the areas hold O in fp32, the maxima and the sums (forward/epilogue_partial.cuh).
constexpr int kMergeBytes = kBr * (kHeadDimV * 4 + (160 - kHeadDimV * 4 % 128) % 128 + 8 + kMerges * 4);
constexpr int kSmemBytes = kTilesEnd > kMergeBytes ? kTilesEnd : kMergeBytes;
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");

__device__ __forceinline__ unsigned k_stage(unsigned smem, int tile)
{
    return smem + kKArea + tile % kStages * kTileBytes;
}

// The mbarriers of a tile's stage.
__device__ __forceinline__ unsigned tile_is_there(unsigned smem, int tile)
{
    return smem + kBarriers + tile % kStages * 16;
}

__device__ __forceinline__ unsigned place_is_free(unsigned smem, int tile)
{
    return tile_is_there(smem, tile) + 8;
}
