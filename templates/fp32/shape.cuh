#pragma once

// ---- derived constants -----------------------------------------------------------------------------------------
constexpr int kThreads = kWarps * 32;
constexpr int kRowTiles = kBr / (16 * kWarps);  // m16 row tiles per warp
constexpr int kColTiles = kBc / 8;              // n8 column tiles of S
constexpr int kOutTiles = kHeadDimV / 8;        // n8 column tiles of O
constexpr int kHeadDimPadded = kHeadDim, kHeadDimVPadded = kHeadDimV;

using ScoreTile = float[kRowTiles][kColTiles][4];
using OutputTile = float[kRowTiles][kOutTiles][4];

static_assert(kBr % (16 * kWarps) == 0, "a warp owns whole m16 row tiles");
static_assert(kBc % 8 == 0, "S is whole n8 column tiles");
