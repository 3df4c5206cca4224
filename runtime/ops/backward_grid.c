/*
 * A block of the main step owns a tile of keys, or, behind all of those, rows of dQ. Steps before and
 * behind it work on padded rows: whole tiles of each head.
 */
#include "runtime/base/status.h"
#include "runtime/ops/backward.h"
#include "runtime/ops/call.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static fa2_status too_many(const fa2_problem *problem, const char *what, int64_t tiles)
{
    return fa2i_fail(FA2_E_UNSUPPORTED,
                     "%lld %s x %d heads x %d batches are more blocks than one launch can have "
                     "(%d)",
                     (long long)tiles, what, (int)problem->heads_q, (int)problem->batch,
                     (int)INT32_MAX);
}

/* Blocks of a step; 64 bits hold each, as no factor that has been checked is left. */
static int64_t count_blocks(const fa2i_step *step, const fa2_problem *problem, int64_t padded_rows,
                            int64_t key_tiles)
{
    const int64_t heads = (int64_t)problem->batch * problem->heads_q;
    switch (step->blocks) {
    case FA2I_BLOCKS_PADDED_ROWS:
        return ceil_div(padded_rows, step->block_rows);
    case FA2I_BLOCKS_KEY_AND_QUERY_TILES:
        return key_tiles + heads * ceil_div(problem->seq_q, step->block_rows);
    case FA2I_BLOCKS_HEADS:
        return problem->heads_q;
    default: /* parsing lets no other word through */
        return key_tiles;
    }
}

fa2_status fa2i_backward_grid(const fa2i_card *card, const fa2i_recipe *recipe,
                              const fa2_problem *problem, fa2i_grid *ret_grid)
{
    (void)card;
    const int64_t heads = (int64_t)problem->batch * problem->heads_q;
    const int64_t kv_heads = (int64_t)problem->batch * problem->heads_kv;
    fa2i_grid grid = {.row_tiles = (int32_t)ceil_div(problem->seq_q, recipe->rows),
                      .key_tiles = (int32_t)ceil_div(problem->seq_k, recipe->keys),
                      .splits = 1};

    if (recipe->columns > 0 && recipe->columns < problem->head_dim)
        return fa2i_fail(FA2_E_UNSUPPORTED, "columns is %d in the recipe; head_dim is %d",
                         recipe->columns, (int)problem->head_dim);
    if (heads > INT32_MAX || kv_heads * grid.key_tiles > INT32_MAX)
        return too_many(problem, "key tiles", grid.key_tiles);
    const int64_t padded_rows = heads * grid.row_tiles * recipe->rows; /* < 2^62 */
    for (int i = 0; i < recipe->step_count; i++) {
        const int64_t blocks =
            count_blocks(&recipe->steps[i], problem, padded_rows, kv_heads * grid.key_tiles);
        if (blocks > INT32_MAX)
            return too_many(problem, "query tiles",
                            ceil_div(problem->seq_q, recipe->steps[i].block_rows));
        grid.blocks[i] = (unsigned)blocks;
    }
    if (recipe->workspace !=
        FA2I_WORKSPACE_NONE) { /* then there is a step per padded rows: < 2^47 */
        grid.rows_bytes = 2 * sizeof(float) * (size_t)padded_rows;
        grid.workspace_bytes =
            grid.rows_bytes + (size_t)padded_rows * (size_t)recipe->columns * sizeof(float);
        if (recipe->workspace == FA2I_WORKSPACE_ROWS_DQ_AND_TURNS)
            grid.workspace_bytes += ((size_t)padded_rows / (size_t)recipe->rows + 1) *
                                    sizeof(uint32_t); /* a counter per tile, and one for tickets */
    }
    const fa2_status st = fa2i_clusters_check(recipe, grid.blocks);
    if (st == FA2_OK)
        *ret_grid = grid;
    return st;
}
