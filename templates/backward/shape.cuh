#pragma once

// ---- derived constants -----------------------------------------------------------------------------------------
constexpr int kThreads = kWarps * 32;
constexpr int kKeyWarps = kWarps / kQueryWarps;
constexpr int kColWarps = kWarps / kRowWarps;
constexpr int kHeadDimPadded = (kHeadDim + 16 * kQueryWarps - 1) / (16 * kQueryWarps) * (16 * kQueryWarps);
constexpr int kHeadDimVPadded = (kHeadDimV + 16 * kQueryWarps - 1) / (16 * kQueryWarps) * (16 * kQueryWarps);
constexpr int kDepth = kHeadDimPadded / 16;                        // k16 steps of S; 16-column pairs of dK and dQ
constexpr int kKeyTiles = kBc / (16 * kKeyWarps);                  // m16 tiles of keys per warp
constexpr int kWarpQueries = kBr / kQueryWarps;                    // queries per tile and warp
constexpr int kQueryTiles = kWarpQueries / (8 * kParts);           // n8 tiles of queries per part
constexpr int kQuerySteps = kQueryTiles / 2;                       // k16 steps of dK and dV per part
constexpr int kOutPairs = kDepth / kQueryWarps;                    // 16-column pairs of n8 tiles of dK per warp
constexpr int kValuePairs = kHeadDimVPadded / (16 * kQueryWarps);  // 16-column pairs of n8 tiles of dV per warp
constexpr int kDqRowTiles = kBr / (16 * kRowWarps);                // m16 tiles of dQ per warp
constexpr int kDqPartTiles = kDqRowTiles / kDqParts;               // m16 tiles of dQ per warp at a time
constexpr int kDqPairs = kDepth / kColWarps;                       // 16-column pairs of dQ per warp
// One loop processes tiles with and without a mask. Measured with 21 causal kernels that add to dQ in order, D = 128:
// 14 spill with two loops, and 6 with one. With D = 64 the fastest kernels spill with one loop.
constexpr bool kOneLoop = kWindow != Window::kNone || kSplit || (kDqInOrder && kCausal && kHeadDim > 64);
constexpr unsigned kTogether = 512;  // tiles of keys, over several heads, that are interleaved
constexpr unsigned kLeastHeads = 8;  // the least number of heads that are interleaved
// Blocks with the most work come first, over all heads; else blocks are in the order of their keys.
constexpr bool kHeavyFirst = kCausal && kWindow == Window::kNone;

static_assert(kHeadDim % 8 == 0 && kHeadDim >= 8 && kHeadDim <= 256, "D is a multiple of 8 up to 256");
static_assert(kHeadDimV % 8 == 0 && kHeadDimV >= 8 && kHeadDimV <= 256, "so are the columns of V");
static_assert(kWarps % kQueryWarps == 0 && kWarps % kRowWarps == 0, "warps divide both ways evenly");
static_assert(kBc % (16 * kKeyWarps) == 0, "a warp owns whole m16 tiles of keys");
static_assert(kWarpQueries % (16 * kParts) == 0, "a part of the queries is whole k16 steps of dK and dV");
static_assert(kBr % (16 * kRowWarps) == 0, "a warp owns whole m16 tiles of dQ");
static_assert(kBarriers == 2 ? kStages <= 2 : kStages == (kQueryWarps > 1 ? 3 : 2),
              "with one barrier a tile is read until the next but one is copied");
static_assert(kDqRowTiles % kDqParts == 0, "parts of dQ are whole m16 tiles");
static_assert(!kFillLater || kStages == 1, "there is one stage, which has been read by then");
static_assert(kDepth % kColWarps == 0, "a warp owns whole pairs of n8 tiles of dQ");
