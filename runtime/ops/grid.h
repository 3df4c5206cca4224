/*
 * How a recipe is spread over a device for a problem: the blocks of its steps, splits of the keys,
 * workspace. Each operation makes it (fa2i_op.grid); a plan keeps it. Plain data.
 */
#ifndef FA2I_OPS_GRID_H
#define FA2I_OPS_GRID_H

#include "runtime/base/record.h"

typedef struct fa2i_grid {
    unsigned blocks[FA2I_RECIPE_STEPS]; /* of each step; 0: it is skipped */
    int32_t row_tiles;                  /* per head; per key head when the recipe packs heads */
    int32_t key_tiles;                  /* per head; backward only */
    int32_t splits;
    int32_t slots; /* forward, where sequences have lengths: blocks of a key head, which divide the
                    * keys of all sequences; 0 else */
    /* Forward: partial O, then partial LSE if there are several splits, then Q if it is rotated; or all
     * scores; or a counter, and the keys of dropout's columns; else 0. Backward: parts of dK and dV if there
     * are several splits, LSE and delta of rows, then sums of dQ; 0 without them. */
    size_t workspace_bytes;
    size_t partial_bytes; /* of it, partial O; parts of dK and dV */
    size_t queries_at;    /* in it, where rotated Q begins; forward */
    size_t rows_bytes;    /* of it, LSE and delta of rows */
} fa2i_grid;

#endif
