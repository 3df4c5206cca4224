#pragma once

// ---- derived constants -----------------------------------------------------------------------------------------
constexpr int kThreads = kWarps * 32;
constexpr int kTeamThreads = kThreads / kTeams;
constexpr int kRowTiles = kBr * kTeams * kParts / (16 * kWarps);  // m16 row tiles per warp
constexpr int kColTiles = kBc / 8;                                // n8 column tiles of S
constexpr int kUnit = 16 * kParts;                                // columns per k16 step of all warps that share rows
constexpr int kHeadDimPadded = (kHeadDim + kUnit - 1) / kUnit * kUnit;  // columns in shared memory, zero-filled
constexpr int kHeadDimVPadded = (kHeadDimV + kUnit - 1) / kUnit * kUnit;
constexpr int kOutTiles = kParts > 1 ? kHeadDimVPadded / (8 * kParts) : kHeadDimV / 8;  // n8 column tiles of O
constexpr int kDepth = kHeadDimPadded / kUnit;                                          // k16 steps of S = Q K^T
constexpr bool kJoint = kKStages == kVStages && kKStages > 1;  // K and V of a tile are one stage

static_assert(kHeadDim % 8 == 0 && kHeadDimV % 8 == 0 && kHeadDimV >= 8, "columns are multiples of 8");
static_assert(!kVInK || kKStages == kVStages, "K and V of a tile are one");
static_assert(kHeadDimV <= kHeadDim, "rows of O come into the place of rows of Q");
static_assert(kParts > 1 || kHeadDim <= 256, "more columns are for several warps");
static_assert(kWarps % (kTeams * kParts) == 0, "teams are of one size");
static_assert(kBr * kTeams * kParts % (16 * kWarps) == 0, "a warp owns whole m16 row tiles");
static_assert(kBc % 16 == 0, "P V runs in k16 steps");
static_assert(kJoint || !kSpreadFill, "V is waited for right after S");
static_assert(kJoint || kVStages == 1, "V is double-buffered only together with K");
