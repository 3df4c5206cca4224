/*
 * Everything is computed in 64 bits. Lengths are below 2^31, and so are the rows of a group (fa2i_problem_check). The
 * number of row tiles may not fit, so it is never computed; its factors are divided by one after the other.
 */
#include "runtime/ops/splits.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t fa2i_row_tile_keys(const fa2_problem *problem, int rows)
{
    const int64_t group = problem->heads_q / problem->heads_kv;
    /* a row tile may begin with the last head of one query and end with the first head of another */
    const int64_t queries = least_of(problem->seq_q, (rows + group - 2) / group + 1);
    const int64_t right = problem->causal ? 0 : problem->window_right;
    if (!problem->window || problem->window_left < 0 || problem->window == FA2_WINDOW_PREFIX)
        return problem->seq_k;
    if (problem->window == FA2_WINDOW_CHUNK) /* it may begin and end inside a chunk */
        return least_of(problem->seq_k, queries + 2 * (int64_t)problem->window_left);
    /* from the first query's position to `right` keys beyond the last one's, or to the last key */
    const int64_t ahead = right < 0 ? problem->seq_q : least_of(problem->seq_q, queries + right);
    return least_of(problem->seq_k, ahead + problem->window_left);
}

int32_t fa2i_split_count(const fa2_problem *problem, int sm_count, const fa2i_splitting *splitting)
{
    const int64_t group_rows = (int64_t)problem->seq_q * (problem->heads_q / problem->heads_kv);
    const int64_t row_tiles = ceil_div(group_rows, splitting->rows); /* of a key head */
    /* a window may begin inside a tile */
    const int64_t keys = least_of(problem->seq_k, fa2i_row_tile_keys(problem, splitting->rows) + splitting->keys - 1);
    const int64_t steps = ceil_div(keys, splitting->keys);
    int64_t splits = (int64_t)splitting->waves * sm_count / row_tiles / problem->heads_kv / problem->batch;
    splits = least_of(least_of(splits, splitting->max_splits), steps);
    return splits <= 1 ? 1 : (int32_t)ceil_div(steps, ceil_div(steps, splits));
}
