#pragma once
#include "lib/tile.cuh"

// ---- areas of shared memory -----------------------------------------------------------------------------------
//
// ValueTile: rows of V, O and their gradients.
using ValueTile = TileForm<kHeadDimVPadded>;
constexpr int kQTileBytes = kBr * kPitch;
constexpr int kKTileBytes = kBc * kPitch;
constexpr int kDoTileBytes = kBr * ValueTile::kPitch;
constexpr int kVTileBytes = kBc * ValueTile::kPitch;

// dS^T [keys][queries] of the whole tile: dQ needs the results of every warp.
using ScoreTile = TileForm<kBr>;
constexpr int kScoreBytes = kBc * ScoreTile::kPitch;

// P^T as fragments, for the warps that have the same keys: [key warp][query warp][step][m16 tile][lane].
constexpr int kFragmentBytes = 32 * 16;
constexpr int kWarpFragments = kParts * kQuerySteps * kKeyTiles;
constexpr int kSharedPBytes = kQueryWarps > 1 ? kWarps *kWarpFragments *kFragmentBytes : 0;

// With one barrier per tile, a tile's P^T and dS^T are still read while the next tile's are written.
constexpr int kScoreStages = kBarriers == 1 ? 2 : 1;

// LSE in log2 units and delta of the rows of a tile.
constexpr int kRowBytes = 2 * kBr * 4;

constexpr int kKArea = 0;
constexpr int kVArea = kKArea + kKTileBytes;
constexpr int kQArea = kVArea + kVTileBytes;
constexpr int kDoArea = kQArea + kStages * kQTileBytes;
constexpr int kScoreArea = kDoArea + kStages * kDoTileBytes;
constexpr int kSharedPArea = kScoreArea + kScoreStages * kScoreBytes;
constexpr int kRowArea = kSharedPArea + kScoreStages * kSharedPBytes;
constexpr int kKeyBlockBytes = kRowArea + kStages * kRowBytes;

// Separate blocks of dQ: 16 rows of Q and dO per warp, two tiles of K and V, LSE and delta.
constexpr int kDqRows = 16 * kWarps;
constexpr int kDqKBytes = kDqBc * kPitch;
constexpr int kDqVBytes = kDqBc * ValueTile::kPitch;
constexpr int kDqDoArea = kDqRows * kPitch;
constexpr int kDqKArea = kDqDoArea + kDqRows * ValueTile::kPitch;
constexpr int kDqVArea = kDqKArea + 2 * kDqKBytes;
constexpr int kDqStatArea = kDqVArea + 2 * kDqVBytes;
constexpr int kQueryBlockBytes = kDqStatArea + 2 * kDqRows * 4;

constexpr int kSmemBytes = kDqSeparate && kQueryBlockBytes > kKeyBlockBytes ? kQueryBlockBytes : kKeyBlockBytes;
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");
