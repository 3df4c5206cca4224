#pragma once
#include "lib/types.cuh"

// ---- derived constants -----------------------------------------------------------------------------------------
constexpr bool kDvLate = kLate;      // dV is started after dS is made
constexpr bool kHeavyFirst = false;  // blocks with the most work first, within kTogether
constexpr unsigned kTogether = 128;  // tiles of keys, over several heads, that are interleaved
// The least number of heads that are interleaved. If blocks of a head add to dQ in the order of their keys, each starts
// a little after the one before. With more heads, fewer blocks of each head run at a time, and the last of them starts
// sooner.
constexpr unsigned kLeastHeads = kLastKeysFirst ? 1 : kDqInOrder ? 16 : 8;
constexpr bool kAlways = kByProduct && kDropout;  // dV and dK are computed even if not wanted
constexpr bool kSwizzle = true;                   // rows of a tile: 16-byte chunks permuted by row
constexpr int kGroupKeys = 64;                    // M of wgmma
constexpr int kWarps = 4 * kGroups;               // consumer warps
constexpr int kReaders = 8;                       // consumer warps that read a stage of Q, and that read one of dO
constexpr int kWorkers = 32 * kWarps;
constexpr int kKeyGroups = kDqWarpgroup ? kGroups - 1 : kGroups;  // warpgroups with rows of S^T (not kByProduct)
constexpr int kKeyWorkers = 128 * kKeyGroups;
constexpr bool kDsBarriers = kByProduct || kDqWarpgroup || kDqBulk;  // dS^T has mbarriers
// If blocks add in a fixed order, a thread of the producer does what would hold up others (bwd_producer.cuh).
constexpr bool kCountsApart = kDqWarpgroup && kDqInOrder;       // it counts tiles and gives the stages of dS^T back
constexpr bool kAddsApart = kDqBulk && kDqInOrder;              // it lets the copy engine add dQ, and counts
constexpr int kScoreWriters = kByProduct ? 4 : 4 * kKeyGroups;  // warps that write a stage of dS^T
constexpr int kScoreReaders = kDqBulk ? kWarps : kCountsApart ? 1 : 4;  // arrivals for a stage that was read
constexpr int kThreads = kWorkers + 128;                                // the last warpgroup is the producer
constexpr int kHeadDimPadded = (kHeadDim + 15) / 16 * 16;
constexpr int kHeadDimVPadded = kHeadDimPadded;
constexpr bool kHoldsKeys = kDqWarpgroup && kDvLate && kHeadDimPadded <= 64;  // K and V are in registers
constexpr int kDepth = kHeadDimPadded / 16;                                   // k16 steps of S and dP
constexpr int kPages = (kHeadDim + 63) / 64;                                  // pages of 64 columns per tile
constexpr int kKeyTiles = 1;                                                  // m16 tiles of keys per warp
constexpr int kQueryTiles = kBr / 8;                                          // n8 tiles of queries
constexpr int kQuerySteps = kBr / 16;                                         // k16 steps of dK and dV
constexpr int kOutPairs = kDepth;  // 16-column pairs of n8 tiles of dK and dV
// How warps divide dQ. kByProduct: one warpgroup computes it, 64 columns at a time. kDqWarpgroup: one warpgroup
// computes all columns. Else each warpgroup has 64 rows, and warpgroups with the same rows divide the columns.
constexpr int kRowGroups = kBr / 64, kColWarps = kByProduct     ? kPages
                                                 : kDqWarpgroup ? (kHeadDimPadded + kDqColumns - 1) / kDqColumns
                                                                : kGroups / kRowGroups;
constexpr int kDqRowTiles = 1, kDqPartTiles = 1;  // m16 tiles per warp
constexpr int kDqPairs = kDqColumns / 16;

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256 && kByProduct == (kHeadDim > 128),
              "D is a multiple of 8 up to 256; warpgroups divide the products of more than 128 columns");
static_assert(kByProduct ? kBr == 64 && kBc == kGroupKeys && kGroups == 3
                         : kBr % 64 == 0 && (kDqWarpgroup ? kBr == 64 : kGroups % kRowGroups == 0) &&
                               kBc == kKeyGroups * kGroupKeys && kReaders == 4 * kKeyGroups,
              "each warpgroup has a product of 64 queries and keys; or they divide dQ and keys evenly, and read all");
static_assert(kColWarps * kDqColumns >= kHeadDimPadded, "all of dQ is computed");
// All warpgroups are launched with the same number of registers. Then the producer, and the warpgroup that computes dQ
// alone, give some to those that have scores.
constexpr int kLoadRegisters = 24, kGroupRegisters = kGroups == 3 ? 208 : 240;
constexpr int kAllRegisters = (kGroups + 1) * (65536 / kThreads / 8 * 8);
constexpr int kDqRegisters = kAllRegisters - kLoadRegisters - 2 * kGroupRegisters;
static_assert(kDqRegisters >= (kByProduct || kDqWarpgroup ? 24 : 0),
              "all warpgroups together have no more registers than at launch");

// ---- shared memory -----------------------------------------------------------------------------
//
// Tiles are pages of 64 columns, [page][row][64]: rows of 128 bytes, whose 16-byte chunks are permuted by row % 8. This
// is the 128-byte swizzle that TMA writes and wgmma reads. dS^T [keys][queries] has the same layout.
constexpr int kPageRowBytes = 128, kPageColumns = kPageRowBytes / kElemBytes;
constexpr int kQPageBytes = kBr * kPageRowBytes;
constexpr int kQTileBytes = kPages * kQPageBytes;
constexpr int kKvPageBytes = kBc * kPageRowBytes;
constexpr int kKvTileBytes = kPages * kKvPageBytes;
// Distance in a tile of K from the columns of one part of dQ to those of the next.
constexpr int kDqColumnBytes = kDqColumns == kPageColumns ? kKvPageBytes : kDqColumns * kElemBytes;
constexpr int kScoreBytes = kRowGroups * kKvPageBytes;
// Stages of dS^T: one is written while others may still read the one before.
constexpr int kScoreStages = kStages;
constexpr int kRowBytes = kBr * 4;  // LSE in log2 units, or delta, of the rows of a tile
constexpr int kKArea = 0;
constexpr int kVArea = kKArea + kKvTileBytes;
constexpr int kQArea = kVArea + kKvTileBytes;
constexpr int kDoArea = kQArea + kStages * kQTileBytes;
constexpr int kScoreArea = kDoArea + kStages * kQTileBytes;
constexpr int kPArea = kScoreArea + kScoreStages * kScoreBytes;  // P^T in fp32, in accumulator layout (kByProduct)
constexpr int kPTileBytes = 32 * 16;                             // 16 keys, 8 queries
constexpr int kLseArea = kPArea + (kByProduct ? 4 * kQueryTiles * kPTileBytes : 0);
constexpr int kDeltaArea = kLseArea + kStages * kRowBytes;
constexpr int kBarrierArea = kDeltaArea + kStages * kRowBytes;
constexpr int kExchangeArea = kBarrierArea + (2 + 4 * kStages) * 8;  // mbarriers of P^T and dS^T
constexpr int kExchangeBytes = kDsBarriers ? (2 + (kCountsApart ? 3 : 2) * kScoreStages) * 8 : 0;
// kDqBulk: a part of dQ for each warp, [n8 tile][lane][4] numbers.
constexpr int kDqArea = (kExchangeArea + kExchangeBytes + 127) / 128 * 128, kDqPartBytes = 16 * kDqColumns * 4;
constexpr int kSmemBytes = kDqBulk ? kDqArea + kWarps * kDqPartBytes : kExchangeArea + kExchangeBytes;
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");
