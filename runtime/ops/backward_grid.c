/*
 * A block of the main step owns a tile of keys; blocks after all of those own rows of dQ. The steps before and after it
 * work on padded rows: whole tiles of each head.
 *
 * Tiles of packed sequences are numbered so that a sequence begins at its first row / rows + its number
 * (templates/features/lengths.cuh): there are total / rows + batch numbers at most, of a head. Their workspace
 * follows the rows of the tensors, not the tiles, which short sequences leave nearly empty. Sums of dQ have the rows of
 * dQ; LSE and delta have tiles of eight rows (templates/backward/sequences.cuh).
 */
#include "runtime/base/status.h"
#include "runtime/ops/backward.h"
#include "runtime/ops/call.h"
#include "runtime/ops/forward.h"

/* Rows of LSE and delta: a sequence is rounded up to whole sectors, a head to whole warps. */
enum { SECTOR_ROWS = 8, WARP_ROWS = 32 };

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static fa2_status too_many(const fa2_problem *problem, const char *what, int64_t tiles)
{
    return fa2i_fail(FA2_E_UNSUPPORTED, "%lld %s x %d heads x %d batches are more blocks than one launch can have (%d)",
                     (long long)tiles, what, (int)problem->heads_q, (int)problem->batch, (int)INT32_MAX);
}

/* Counts the query heads of all batches. */
static int64_t all_heads(const fa2_problem *problem)
{
    return (problem->varlen ? 1 : (int64_t)problem->batch) * problem->heads_q;
}

/* Counts tiles of so many rows, of queries or of keys. Packed: of all sequences together. */
static int64_t query_tiles(const fa2_problem *problem, int rows)
{
    return problem->varlen ? fa2i_forward_total_q(problem) / rows + problem->batch : ceil_div(problem->seq_q, rows);
}

static int64_t tiles_of_keys(const fa2_problem *problem, int rows)
{
    return problem->varlen ? fa2i_forward_total_k(problem) / rows + problem->batch : ceil_div(problem->seq_k, rows);
}

/* Counts the blocks of a step. Each number fits 64 bits, because the factors were checked. */
static int64_t count_blocks(const fa2i_step *step, const fa2_problem *problem, int64_t padded_rows, int64_t key_tiles,
                            int64_t splits)
{
    const int64_t heads = all_heads(problem);
    const int64_t planes = (int64_t)problem->batch * problem->heads_q;
    switch (step->blocks) {
    case FA2I_BLOCKS_PADDED_ROWS:
        return ceil_div(padded_rows, step->block_rows);
    case FA2I_BLOCKS_QUERY_TILES:
        return heads * query_tiles(problem, step->block_rows);
    case FA2I_BLOCKS_KEY_AND_QUERY_TILES:
        return key_tiles * splits + heads * query_tiles(problem, step->block_rows);
    case FA2I_BLOCKS_KEY_TILE_SUMS:
        return splits > 1 ? 2 * key_tiles : 0;
    case FA2I_BLOCKS_HEADS:
        return problem->heads_q;
    case FA2I_BLOCKS_KEY_HEADS:
        return (int64_t)problem->batch * problem->heads_kv;
    case FA2I_BLOCKS_SCORE_ROWS: /* each sequence counts as the longest */
        return planes > INT32_MAX ? planes : ceil_div(planes * problem->seq_q, step->block_rows);
    default: /* parsing admits no other word */
        return key_tiles * splits;
    }
}

/* Counts the blocks that share the queries of a tile of keys: each has so many heads of the group; or there are so many
 * that about `waves` blocks come to each SM. Without a mask, each of them has a tile of queries.
 * gen/ops/backward_cost.lua computes the same. */
static int64_t count_splits(const fa2i_card *card, const fa2i_recipe *recipe, const fa2_problem *problem,
                            int64_t key_tiles, int64_t row_tiles)
{
    const int64_t group = problem->heads_q / problem->heads_kv;
    if (recipe->heads > 0) {
        const int64_t shares = ceil_div(group, recipe->heads);
        return shares <= INT32_MAX / key_tiles ? shares : 1; /* else a launch cannot have so many blocks */
    }
    const int64_t tiles = row_tiles * group;
    int64_t splits = (int64_t)recipe->waves * card->sm_count / key_tiles;
    splits = splits < recipe->max_splits ? splits : recipe->max_splits;
    splits = splits < tiles ? splits : tiles;
    return splits > 1 ? splits : 1;
}

/* Rounds the rows of LSE and delta of a head up to whole tiles; < 2^33. */
static int64_t pad_rows(const fa2_problem *problem, int rows)
{
    if (problem->varlen)
        return ceil_div(query_tiles(problem, SECTOR_ROWS) * SECTOR_ROWS, WARP_ROWS) * WARP_ROWS;
    return query_tiles(problem, rows) * rows;
}

/* Counts the bytes of partial dK and dV: a part of each block. With heads, there is one part to which all add, with two
 * counters for each tile of keys, and one for tickets (templates/backward/split.cuh). */
static size_t partial_bytes(const fa2i_recipe *recipe, int32_t splits, size_t key_tiles)
{
    enum { LINE = 128 };
    const size_t parts = recipe->heads > 0 ? 1 : (size_t)splits;
    const size_t sums = parts * key_tiles * 2 * (size_t)recipe->keys * (size_t)recipe->columns * sizeof(float);
    if (recipe->heads == 0)
        return sums;
    return sums + ((2 * key_tiles + 1) * sizeof(uint32_t) + LINE - 1) / LINE * LINE;
}

static void spread_workspace(const fa2i_recipe *recipe, const fa2_problem *problem, fa2i_grid *grid)
{
    const size_t heads = (size_t)all_heads(problem);
    const size_t tiles = heads * (size_t)query_tiles(problem, recipe->rows);
    const size_t rows = 2 * sizeof(float) * heads * (size_t)pad_rows(problem, recipe->rows);
    const size_t dq_rows =
        problem->varlen ? heads * (size_t)fa2i_forward_total_q(problem) : tiles * (size_t)recipe->rows;
    const size_t sums = dq_rows * (size_t)recipe->columns * sizeof(float);
    switch (recipe->workspace) {
    case FA2I_WORKSPACE_ROWS_DQ_AND_TURNS: /* a counter per tile, and one for tickets */
        grid->workspace_bytes = (tiles + 1) * sizeof(uint32_t);
        /* fall through */
    case FA2I_WORKSPACE_ROWS_AND_DQ:
        grid->workspace_bytes += sums;
        /* fall through */
        grid->rows_bytes = rows;
        grid->workspace_bytes += rows;
        break;
    case FA2I_WORKSPACE_ROWS_AND_TURNS:
        grid->workspace_bytes = (tiles + 1) * sizeof(uint32_t);
        /* fall through */
    case FA2I_WORKSPACE_ROWS:
        grid->rows_bytes = rows;
        grid->workspace_bytes += rows;
        break;
    case FA2I_WORKSPACE_DQ_OF_TILES:
        grid->workspace_bytes = grid->key_tiles > 1 ? sums : 0;
        break;
    default: /* no workspace */
        break;
    }
    grid->workspace_bytes += grid->partial_bytes;
}

/* Kernels with maps have tiles of at least 64 rows and these columns. So their own workspace is as large as this, or a
 * few columns larger. */
size_t fa2i_backward_unmapped_bytes(const fa2_problem *problem)
{
    const fa2i_recipe recipe = {.rows = 64,
                                .columns = (problem->head_dim + 31) / 32 * 32,
                                .workspace = problem->deterministic ? FA2I_WORKSPACE_ROWS_DQ_AND_TURNS
                                                                    : FA2I_WORKSPACE_ROWS_AND_DQ};
    fa2i_grid grid = {.splits = 1};
    spread_workspace(&recipe, problem, &grid);
    return grid.workspace_bytes;
}

fa2_status fa2i_backward_grid(const fa2i_card *card, const fa2i_recipe *recipe, const fa2_problem *problem,
                              fa2i_grid *ret_grid)
{
    const int64_t heads = all_heads(problem);
    const int64_t kv_heads = heads / problem->heads_q * problem->heads_kv;
    const int64_t row_tiles = query_tiles(problem, recipe->rows);
    const int64_t key_tiles = tiles_of_keys(problem, recipe->keys);
    fa2i_grid grid = {.row_tiles = (int32_t)row_tiles, .key_tiles = (int32_t)key_tiles, .splits = 1};
    if (recipe->columns > 0 && recipe->columns < problem->head_dim)
        return fa2i_fail(FA2_E_UNSUPPORTED, "columns is %d in the recipe; head_dim is %d", recipe->columns,
                         (int)problem->head_dim);
    if (heads > INT32_MAX || kv_heads * key_tiles > INT32_MAX)
        return too_many(problem, "key tiles", key_tiles);
    if (row_tiles > INT32_MAX / heads || pad_rows(problem, recipe->rows) > INT32_MAX)
        return too_many(problem, "query tiles", row_tiles);
    grid.splits = (int32_t)count_splits(card, recipe, problem, kv_heads * key_tiles, row_tiles);
    const int64_t padded_rows = heads * pad_rows(problem, recipe->rows);
    for (int i = 0; i < recipe->step_count; i++) {
        const int64_t blocks = count_blocks(&recipe->steps[i], problem, padded_rows, kv_heads * key_tiles, grid.splits);
        if (blocks > INT32_MAX)
            return too_many(problem, "query tiles", query_tiles(problem, recipe->steps[i].block_rows));
        const bool summed =
            recipe->workspace != FA2I_WORKSPACE_DQ_OF_TILES || key_tiles > 1; /* whether there are sums to convert */
        if (recipe->steps[i].role != FA2I_STEP_CONVERT || summed)
            grid.blocks[i] = (unsigned)blocks;
    }
    if (grid.splits > 1)
        grid.partial_bytes = partial_bytes(recipe, grid.splits, (size_t)(kv_heads * key_tiles));
    spread_workspace(recipe, problem, &grid);
    const fa2_status st = fa2i_clusters_check(recipe, grid.blocks);
    if (st == FA2_OK)
        *ret_grid = grid;
    return st;
}
