/*
 * Among how many blocks the keys of a row tile are divided. Here alone: the launch asks for it, and so
 * does the generator's cost model (host.splits of runtime/lua). Pure arithmetic; thread-safe.
 */
#ifndef FA2I_OPS_SPLITS_H
#define FA2I_OPS_SPLITS_H

#include "runtime/base/problem.h"

/* Of a recipe: the members of fa2i_recipe of these names; each at least 1. */
typedef struct fa2i_splitting {
    int rows, keys, waves, max_splits;
} fa2i_splitting;

/* The most keys that the rows of one row tile see, when the query heads of a group are rows of one
 * matrix. */
int64_t fa2i_row_tile_keys(const fa2_problem *problem, int rows);

/* So many splits that about `waves` blocks come to each SM; one where there are blocks enough, and never
 * more than max_splits, or than steps of `keys` keys. Even: no split has more than
 * ceil(steps / splits) steps, and none is empty unless a mask hides its keys. The problem is valid. */
int32_t fa2i_split_count(const fa2_problem *problem, int sm_count, const fa2i_splitting *splitting);

#endif
