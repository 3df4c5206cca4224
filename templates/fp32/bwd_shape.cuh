#pragma once

// ---- derived constants -----------------------------------------------------------------------------------------
constexpr int kThreads = kWarps * 32;
constexpr int kKeyWarps = kWarps / kQueryWarps;
constexpr int kKeyTiles = kBc / (16 * kKeyWarps);  // m16 tiles of keys per warp
// n8 tiles of queries per warp, of S^T. If there are fewer queries than warps could have, some warps have none.
constexpr int kQueryTiles = kBr > 8 * kQueryWarps ? kBr / (8 * kQueryWarps) : 1;
constexpr bool kAllHaveQueries = kBr >= 8 * kQueryWarps;
constexpr int kHeadDimPadded = kHeadDim, kHeadDimVPadded = kHeadDimV;

// Groups of 32 columns are dealt out to warps. A warp reads columns beyond the last ones at the last ones' place.
constexpr int kGroupColumns = 32;
constexpr int kOutGroups = (kHeadDim + kGroupColumns * kQueryWarps - 1) / (kGroupColumns * kQueryWarps);     // of dK
constexpr int kValueGroups = (kHeadDimV + kGroupColumns * kQueryWarps - 1) / (kGroupColumns * kQueryWarps);  // of dV
// dQ: warps that divide its columns, if none of them is idle; the rest divide its rows.
constexpr bool divide_columns(int warps)
{
    return kHeadDim > kGroupColumns * warps / 2;
}
constexpr int kDqColWarps = kWarps >= 8 && divide_columns(8)   ? 8
                            : kWarps >= 4 && divide_columns(4) ? 4
                            : divide_columns(2)                ? 2
                                                               : 1;
constexpr int kDqRows = kBr / (kWarps / kDqColWarps);  // rows of dQ per warp
constexpr int kDqGroups = (kHeadDim + kGroupColumns * kDqColWarps - 1) / (kGroupColumns * kDqColWarps);

constexpr bool kFillLater = false;
constexpr int kBarriers = 2;
constexpr unsigned kTogether = 512;  // tiles of keys, over several heads, that are interleaved
constexpr unsigned kLeastHeads = 8;  // the least number of heads that are interleaved
// Blocks with the most work come first, over all heads; else blocks are in the order of their keys.
constexpr bool kHeavyFirst = kCausal && kWindow == Window::kNone;

static_assert(kBc % (16 * kKeyWarps) == 0, "a warp owns whole m16 tiles of keys");
static_assert(kBr % 8 == 0 && (!kAllHaveQueries || kBr % (8 * kQueryWarps) == 0), "a warp owns whole n8 tiles");
static_assert(kDqRows % 4 == 0, "a lane has whole rows of dQ");
