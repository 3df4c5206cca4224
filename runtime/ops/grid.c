/*
 * A family that splits (fa2i_recipe.waves > 0) treats the query heads of a group as rows of one
 * matrix and divides the keys of each row tile among so many blocks that about `waves` of them come
 * to each SM. The split is even: no block gets more than ceil(tiles / splits) tiles, and none is
 * empty unless a causal mask hides its keys.
 */
#include "runtime/ops/grid.h"
#include "runtime/base/status.h"

enum { COMBINE_ROWS = 4 /* per block: kCombineWarps in templates/forward/combine.cu.in */ };

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int32_t split_count(const fa2i_card *card, const fa2i_variant *variant,
                           const fa2_problem *problem, int64_t blocks)
{
    const int64_t steps = ceil_div(problem->seq_k, variant->recipe.keys);
    int64_t splits = (int64_t)variant->recipe.waves * card->sm_count / blocks;
    if (splits > FA2I_MAX_SPLITS)
        splits = FA2I_MAX_SPLITS;
    if (splits > steps)
        splits = steps;
    return splits <= 1 ? 1 : (int32_t)ceil_div(steps, ceil_div(steps, splits));
}

static fa2_status too_many(const fa2_problem *problem, int64_t row_tiles)
{
    return fa2i_fail(
        FA2_E_UNSUPPORTED,
        "%lld query tiles x %d heads x %d batches are more blocks than one launch can have (%d)",
        (long long)row_tiles, (int)problem->heads_q, (int)problem->batch, (int)INT32_MAX);
}

fa2_status fa2i_grid_of(const fa2i_card *card, const fa2i_variant *variant,
                        const fa2_problem *problem, fa2i_grid *ret_grid)
{
    const int64_t group = variant->recipe.waves > 0 ? problem->heads_q / problem->heads_kv : 1;
    const int64_t rows = problem->seq_q * group;
    const int64_t row_tiles = ceil_div(rows, variant->recipe.rows);
    int64_t blocks = row_tiles * (problem->heads_q / group); /* < 2^62 */

    if (rows > INT32_MAX || blocks > INT32_MAX || blocks * problem->batch > INT32_MAX)
        return too_many(problem, row_tiles);
    blocks *= problem->batch;
    fa2i_grid grid = {.blocks = (unsigned)blocks, .row_tiles = (int32_t)row_tiles, .splits = 1};
    if (variant->recipe.waves > 0)
        grid.splits = split_count(card, variant, problem, blocks);
    if (grid.splits > 1) {
        /* blocks * splits <= waves * SMs: far from any limit. */
        const size_t all_rows =
            (size_t)problem->batch * (size_t)problem->heads_q * (size_t)problem->seq_q;
        const size_t partial_rows = all_rows * (size_t)grid.splits;
        grid.blocks *= (unsigned)grid.splits;
        grid.combine_blocks = (unsigned)ceil_div((int64_t)all_rows, COMBINE_ROWS);
        grid.partial_bytes = partial_rows * (size_t)problem->head_dim * sizeof(float);
        grid.workspace_bytes = grid.partial_bytes + partial_rows * sizeof(float);
    }
    *ret_grid = grid;
    return FA2_OK;
}
