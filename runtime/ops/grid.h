/*
 * How a kernel is spread over the device for a problem: blocks, splits of the keys, workspace.
 * Pure arithmetic; thread-safe.
 */
#ifndef FA2I_GRID_H
#define FA2I_GRID_H

#include "runtime/base/record.h"

/* The most blocks that may divide the keys of a row tile: kMaxSplits in templates/forward/combine.cu.in. */
enum { FA2I_MAX_SPLITS = 256 };

typedef struct fa2i_grid {
    unsigned blocks;
    unsigned combine_blocks; /* of the combine kernel; 0 when there is one split */
    int32_t row_tiles;       /* per head; per key head when the family packs heads */
    int32_t splits;
    size_t workspace_bytes; /* partial O, then partial LSE; 0 when there is one split */
    size_t partial_bytes;   /* of it, partial O */
} fa2i_grid;

/* FA2_E_UNSUPPORTED, naming the numbers, when one launch cannot have that many blocks. */
fa2_status fa2i_grid_of(const fa2i_card *card, const fa2i_variant *variant,
                        const fa2_problem *problem, fa2i_grid *ret_grid);

#endif
