/*
 * How a recipe is spread over a device for a problem: the blocks of its steps, splits of the keys, workspace. Each
 * operation computes it (fa2i_op.grid), and a plan keeps it. Plain data.
 */
#pragma once

#include "runtime/base/record.h"

typedef struct fa2i_grid {
    unsigned blocks[FA2I_RECIPE_STEPS]; /* of each step; 0: the step is skipped */
    int32_t row_tiles;                  /* per head; per key head if the recipe packs heads */
    int32_t key_tiles;                  /* per head; only backward */
    int32_t splits;
    int32_t slots; /* forward with lengths in device memory: blocks of a key head, which divide the keys of all
                    * sequences. Else 0 */
    /* Forward has one of these, or 0:
     * - partial O, then partial LSE if there are several splits, then Q if it is rotated
     * - all scores
     * - a counter, then the keys of dropout's columns
     * - K in 8-bit integers, then its scales and means
     *
     * Backward has, as far as needed: partial dK and dV if there are several splits, LSE and delta of rows, sums of
     * dQ. */
    size_t workspace_bytes;
    size_t partial_bytes; /* part of workspace_bytes: partial O, K in 8-bit integers, or partial dK and dV */
    size_t queries_at;    /* forward: offset of rotated Q in the workspace */
    size_t rows_bytes;    /* part of workspace_bytes: LSE and delta of rows */
} fa2i_grid;
