#pragma once
#include "lib/tile.cuh"

// ---- areas of shared memory: K, V, a tile of Q and of dO, P or dS, LSE and delta ----------------------------------
//
// After each row comes a chunk of 16 bytes that is not used, so its pitch is an odd number of chunks. Then eight rows
// that are read together lie in different banks, and so do the rows 2 t of four lanes.
using ValueTile = TileForm<kHeadDimVPadded>;
constexpr int kQTileBytes = kBr * kPitch;
constexpr int kDoTileBytes = kBr * ValueTile::kPitch;

// P, and after it dS: [queries][keys].
using ScoreTile = TileForm<kBc>;

constexpr int kKArea = 0;
constexpr int kVArea = kKArea + kBc * kPitch;
constexpr int kQArea = kVArea + kBc * ValueTile::kPitch;
constexpr int kDoArea = kQArea + kQTileBytes;
constexpr int kScoreArea = kDoArea + kDoTileBytes;
constexpr int kRowArea = kScoreArea + kBr * ScoreTile::kPitch;
constexpr int kRowBytes = 2 * kBr * 4;  // LSE in log2 units and delta of the rows of a tile
constexpr int kSmemBytes = kRowArea + kRowBytes;

static_assert(!kSwizzle, "products read padded rows");
static_assert(kSmemBytes == kGeneratorSmemBytes, "the generator computed another size");
static_assert(kThreads >= kChunks, "a pass copies at least one row");
