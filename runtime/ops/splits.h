/*
 * Computes among how many blocks the keys of a row tile are divided. Only this file does: the launch uses it, and so
 * does the generator's cost model (host.splits of runtime/lua). Pure arithmetic; thread-safe.
 */
#pragma once

#include "runtime/base/problem.h"

/* The members of fa2i_recipe with these names. Each is at least 1. */
typedef struct fa2i_splitting {
    int rows, keys, waves, max_splits;
} fa2i_splitting;

/* Returns the largest number of keys that the rows of one row tile see. The query heads of a group are rows of one
 * matrix. */
int64_t fa2i_row_tile_keys(const fa2_problem *problem, int rows);

/* Returns so many splits that about `waves` blocks come to each SM, or 1 if there are enough blocks. At most
 * max_splits, and at most the number of steps of `keys` keys. The splits are even: none has more than ceil(steps /
 * splits) steps, and each has some unless a mask hides its keys. The problem is valid. */
int32_t fa2i_split_count(const fa2_problem *problem, int sm_count, const fa2i_splitting *splitting);
