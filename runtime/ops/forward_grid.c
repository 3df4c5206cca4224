/*
 * A recipe that packs heads treats the query heads of a group as rows of one matrix, so that K and V
 * are read once for all of them. One that splits keys divides those of each row tile among so many
 * blocks that about `waves` of them come to each SM (splits.h); a step that combines their results
 * runs when there is more than one.
 */
#include <stdio.h>
#include "runtime/base/status.h"
#include "runtime/ops/call.h"
#include "runtime/ops/forward.h"
#include "runtime/ops/splits.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t all_rows(const fa2_problem *problem)
{
    return (int64_t)problem->batch * problem->heads_q * problem->seq_q;
}

static fa2_status too_many(const fa2_problem *problem, int64_t row_tiles, int32_t splits)
{
    char divided[32] = "";
    if (splits > 1)
        snprintf(divided, sizeof divided, " x %d splits", (int)splits);
    return fa2i_fail(
        FA2_E_UNSUPPORTED,
        "%lld query tiles x %d heads x %d batches%s are more blocks than one launch can "
        "have (%d)",
        (long long)row_tiles, (int)problem->heads_q, (int)problem->batch, divided, (int)INT32_MAX);
}

fa2_status fa2i_forward_grid(const fa2i_card *card, const fa2i_recipe *recipe,
                             const fa2_problem *problem, fa2i_grid *ret_grid)
{
    const int64_t group = recipe->pack ? problem->heads_q / problem->heads_kv : 1;
    const int64_t rows = problem->seq_q * group; /* which kernels count in int */
    const int64_t row_tiles = ceil_div(rows, recipe->rows);
    const int64_t tiles = row_tiles * (problem->heads_q / group); /* of a batch; < 2^46 */
    fa2i_grid grid = {.row_tiles = (int32_t)row_tiles, .splits = 1};

    if (rows > INT32_MAX)
        return too_many(problem, row_tiles, 1);
    if (recipe->waves > 0)
        grid.splits = fa2i_split_count(
            problem, card->sm_count,
            &(fa2i_splitting){recipe->rows, recipe->keys, recipe->waves, recipe->max_splits});
    if (tiles * grid.splits > INT32_MAX || tiles * grid.splits * problem->batch > INT32_MAX)
        return too_many(problem, row_tiles, grid.splits);
    for (int i = 0; i < recipe->step_count; i++) {
        const fa2i_step *step = &recipe->steps[i];
        const int64_t blocks = step->blocks == FA2I_BLOCKS_ROWS
                                   ? ceil_div(all_rows(problem), step->block_rows)
                                   : tiles * grid.splits * problem->batch;
        if (blocks > INT32_MAX)
            return too_many(problem, ceil_div(problem->seq_q, step->block_rows), 1);
        if (step->role != FA2I_STEP_COMBINE || grid.splits > 1)
            grid.blocks[i] = (unsigned)blocks;
    }
    if (grid.splits > 1) {
        const size_t partial_rows = (size_t)all_rows(problem) * (size_t)grid.splits;
        grid.partial_bytes = partial_rows * (size_t)problem->head_dim * sizeof(float);
        grid.workspace_bytes = grid.partial_bytes + partial_rows * sizeof(float);
    }
    const fa2_status st = fa2i_clusters_check(recipe, grid.blocks);
    if (st == FA2_OK)
        *ret_grid = grid;
    return st;
}
