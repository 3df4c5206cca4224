#pragma once
#include "lib/tile.cuh"

// The layout of a tile: V has its own if it has fewer columns, and so have rows of 8-bit integers.
template <int kColumns>
using FormOf = TileForm<kColumns == kHeadDimV  ? kHeadDimVPadded
                        : kColumns == kHeadDim ? kHeadDimPadded
                                               : (kColumns + 15) / 16 * 16>;
