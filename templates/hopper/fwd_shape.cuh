#pragma once
#include "lib/types.cuh"

// ---- derived constants -----------------------------------------------------------------------------------------
constexpr bool kSplit = false, kVInK = false;
constexpr int kTeams = 1, kParts = 1, kMaxSplits = 1;
// The part of a term that all scores of a row share goes to the softmax.
constexpr bool kAlibiOffsets = kAlibi && kBias == BiasKind::kNone;
constexpr int kKeyColumns = kHeadDim / kElemBytes;  // of rounded K, as if its bytes were elements
constexpr bool kStays = kPersistent > 0, kCounted = kPersistent == 2;
constexpr bool kOByMap = kStays && kGroups > 1 && !kPartial && !kCarry;  // O is stored by TMA
constexpr int kBlocksPerSm = kGroups == 1 ? 2 : 1;
constexpr int kGroupRows = 64;                             // M of wgmma
constexpr int kBr = kGroupRows * kGroups;                  // query rows per block
constexpr int kThreads = (kGroups + 1) * 128;              // the last warpgroup loads
constexpr int kRowTiles = 1;                               // m16 row tiles per warp
constexpr int kColTiles = kBc / 8;                         // n8 column tiles of S
constexpr int kOutTiles = kHeadDim / 8;                    // n8 column tiles of O
constexpr int kHeadDimPadded = (kHeadDim + 15) / 16 * 16;  // columns that S = Q K^T sums over, padded
constexpr int kDepth = kHeadDimPadded / 16;                // k16 steps of S = Q K^T
constexpr int kPages = (kHeadDim + 63) / 64;               // pages of 64 columns per tile
constexpr bool kSwizzle = true;                            // rows of O in shared memory: 16-byte chunks permuted by row
constexpr bool kQInRegisters = false;                      // O may use the area of Q, so its rows must be read first

// A bias in 16 bits comes through shared memory (bias_tiles.cuh). Its words are read while S is computed, unless other
// work is done at that time.
constexpr bool kBiasStaged = kBias == BiasKind::kFp16 || kBias == BiasKind::kBf16;
constexpr bool kBiasEarly = kBiasStaged && !kBiasInAccumulator && !kDropout;

// Rows of K and V, over all heads that are worked on at a time (kByWeight): 32 MiB, which L2 holds beside Q and O.
constexpr int kSectionRows = (32 << 20) / (2 * kElemBytes * kHeadDim);

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "D is a multiple of 8 up to 256");
static_assert(kBc % (kRounded ? 32 : 16) == 0 && kBc <= 256, "S is one wgmma wide; P V runs in whole steps");
// All warpgroups are launched with the same number of registers; then the producer gives some to the consumers.
static_assert(kLoadRegisters + kGroups * kGroupRegisters <= (kGroups + 1) * (65536 / (kBlocksPerSm * kThreads) / 8 * 8),
              "all warpgroups together have no more registers than at launch");

// ---- shared memory -----------------------------------------------------------------------------
//
// Tiles are pages of 64 columns, [page][row][64]: rows of 128 bytes, whose 16-byte chunks are permuted by row % 8. This
// is the 128-byte swizzle that TMA writes and wgmma reads. Q has separate pages for each warpgroup, so O of one
// warpgroup can use its pages while others still read theirs.
constexpr int kPageRowBytes = 128, kPageColumns = kPageRowBytes / kElemBytes;
constexpr int kQPageBytes = kGroupRows * kPageRowBytes;
constexpr int kGroupBytes = kPages * kQPageBytes;
constexpr int kTilePageBytes = kBc * kPageRowBytes;
constexpr int kSumColumns = 8;  // of rounded V, besides its own: P V has the row sums (bytes_tiles.cuh)
constexpr int kTileBytes = kRounded ? kBc * kHeadDim : kPages * kTilePageBytes;
constexpr int kVTileBytes = kRounded ? (kBc * (kHeadDim + kSumColumns) + 1023) / 1024 * 1024 : kTileBytes;
constexpr int kQArea = 0;
constexpr int kKArea = kGroups * kGroupBytes;
constexpr int kVArea = kKArea + kStages * kTileBytes;
constexpr int kTilesEnd = kVArea + kStages * kVTileBytes;
constexpr int kOArea = kOwnOPlace ? kTilesEnd : kQArea;
// Bias tiles of each warpgroup, in the same pages (side_tiles.cuh).
constexpr int kSideArea = kTilesEnd + (kOwnOPlace ? kGroups * kGroupBytes : 0);
constexpr int kSidePages = kBc / kPageColumns;
constexpr int kSideTileBytes = kSidePages * kQPageBytes;
constexpr int kSideBytes = kBiasStaged ? kSideStages * kGroups * kSideTileBytes : 0;
static_assert(!kBiasStaged || kBc % kPageColumns == 0, "pages of a tile beside those of K are full");
constexpr int kExtraKArea = kSideArea + kSideBytes;  // sixteen more columns of K (slopes.cuh)
constexpr int kBarrierArea = kExtraKArea + (kAlibiMma ? kBc * 32 : 0);
constexpr int kSideBarrierArea = kBarrierArea + (2 * kGroups + 4 * kStages) * 8;
constexpr int kKeysArea = kSideBarrierArea + (kBiasStaged ? kSideStages * kGroups * 16 : 0);
constexpr int kKeyTileBytes = kBc * 8;  // column keys of a tile (column_keys.cuh)
static_assert(!kDropout || (kKeysArea % 16 == 0 && kBc % 32 == 0),
              "words of 32 columns are read at once, and copied whole");
constexpr int kNumberArea = kKeysArea + (kDropout ? kStages * kKeyTileBytes : 0);
constexpr int kSmemBytes = kNumberArea + (kCounted ? kGroups * 4 : 0);  // 4 bytes per warpgroup
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");
