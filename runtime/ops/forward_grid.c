/*
 * A recipe that packs heads treats the query heads of a group as rows of one matrix. So K and V are read once for all
 * of them. A recipe that splits keys divides the keys of each row tile among several blocks, so that about `waves`
 * blocks come to each SM (splits.h). If there are several, another step combines their results.
 *
 * Where sequences have lengths of their own, which the host does not know, that many shares are made
 * of the keys of all sequences together (templates/features/shares.cuh): so many blocks at most, and
 * one more for each row tile, because its last share may be a short one. In packed sequences only row tiles with
 * several shares have results to combine, and these have fewer blocks than twice the number of shares.
 *
 * Row tiles of packed sequences are numbered so that a sequence begins at its first row / rows + its number
 * (templates/forward/sequences.cuh): there are total / rows + batch numbers at most.
 */
#include <stdio.h>
#include "runtime/base/status.h"
#include "runtime/ops/call.h"
#include "runtime/ops/forward.h"
#include "runtime/ops/splits.h"

enum { COLUMN_KEYS_AT = 128, COLUMN_KEY_BYTES = 8 }; /* a key of 16 bytes serves two columns */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Counts the queries of all sequences. */
static int64_t all_queries(const fa2_problem *problem)
{
    return problem->varlen ? fa2i_forward_total_q(problem) : (int64_t)problem->batch * problem->seq_q;
}

static int64_t all_rows(const fa2_problem *problem)
{
    return all_queries(problem) * problem->heads_q;
}

/* Counts the rows of the append step if there are as many new keys as queries. The step can take more, too. */
static int64_t new_rows(const fa2_problem *problem)
{
    const int64_t tensors = problem->v_in_k ? 1 : 2;
    const int64_t heads = tensors * problem->heads_kv + (problem->rotary != FA2_ROTARY_NONE ? problem->heads_q : 0);
    const int64_t rows = all_queries(problem) * heads;
    return rows < INT32_MAX ? rows : INT32_MAX;
}

/* Rounds the keys of a sequence up to whole tiles. */
static int64_t whole_tiles(const fa2i_recipe *recipe, const fa2_problem *problem)
{
    return ceil_div(problem->seq_k, recipe->keys) * recipe->keys;
}

/* Counts the tiles of keys of a key head, in all sequences. Tiles of packed sequences are numbered like row tiles. */
static int64_t key_tiles(const fa2i_recipe *recipe, const fa2_problem *problem)
{
    if (problem->varlen)
        return fa2i_forward_total_k(problem) / recipe->keys + problem->batch;
    return ceil_div(problem->seq_k, recipe->keys) * problem->batch;
}

static fa2_status too_many(const fa2_problem *problem, int64_t row_tiles, int32_t splits)
{
    char divided[32] = "";
    if (splits > 1)
        snprintf(divided, sizeof divided, " x %d splits", (int)splits);
    return fa2i_fail(FA2_E_UNSUPPORTED,
                     "%lld query tiles x %d heads x %d batches%s are more blocks than one launch can have (%d)",
                     (long long)row_tiles, (int)problem->heads_q, (int)problem->batch, divided, (int)INT32_MAX);
}

/* Computes how many blocks share the keys of a row tile, or the keys of all sequences that have lengths. row_tiles: of
 * a key head, in all batches; < 2^61. */
static fa2_status divide_keys(const fa2i_card *card, const fa2i_recipe *recipe, const fa2_problem *problem,
                              int64_t row_tiles, fa2i_grid *grid)
{
    if (!fa2i_forward_has_lengths(problem)) {
        grid->splits = fa2i_split_count(
            problem, card->sm_count, &(fa2i_splitting){recipe->rows, recipe->keys, recipe->waves, recipe->max_splits});
        return FA2_OK;
    }
    const int64_t shares = (int64_t)recipe->waves * card->sm_count / problem->heads_kv;
    const bool divided = shares > 1 && problem->seq_k > recipe->keys;
    const int64_t slots = row_tiles + (divided ? shares : 0);
    if (slots > INT32_MAX / problem->heads_kv)
        return too_many(problem, row_tiles, 1);
    grid->splits = divided ? (int32_t)shares : 1;
    grid->slots = (int32_t)slots;
    return FA2_OK;
}

/* Counts the blocks of the main step, and the rows that they leave to be combined if there are several splits. */
static fa2_status spread_main(const fa2i_recipe *recipe, const fa2_problem *problem, int64_t tiles,
                              const fa2i_grid *grid, int64_t *ret_blocks, int64_t *ret_partial_rows)
{
    if (grid->slots > 0) {
        const int64_t most = problem->varlen ? 2 * (int64_t)grid->splits : grid->slots;
        const int64_t parts = grid->slots < most ? grid->slots : most;
        *ret_blocks = (int64_t)grid->slots * problem->heads_kv;
        *ret_partial_rows = parts * problem->heads_kv * recipe->rows;
        return FA2_OK;
    }
    const int64_t batches = problem->varlen ? 1 : problem->batch;
    if (tiles * grid->splits > INT32_MAX || tiles * grid->splits * batches > INT32_MAX)
        return too_many(problem, grid->row_tiles, grid->splits);
    *ret_blocks = tiles * grid->splits * batches;
    *ret_partial_rows = all_rows(problem) * grid->splits;
    return FA2_OK;
}

/* Counts the blocks of a step. Resident blocks, block_rows on each SM, take one row tile after the other. */
static int64_t blocks_of(const fa2i_card *card, const fa2i_recipe *recipe, const fa2i_step *step,
                         const fa2_problem *problem, int64_t main_blocks)
{
    if (step->blocks == FA2I_BLOCKS_ONE)
        return 1;
    if (step->blocks == FA2I_BLOCKS_KEYS)
        return ceil_div(whole_tiles(recipe, problem), step->block_rows);
    if (step->blocks == FA2I_BLOCKS_ROWS)
        return ceil_div(all_rows(problem), step->block_rows);
    if (step->blocks == FA2I_BLOCKS_NEW_ROWS)
        return ceil_div(new_rows(problem), step->block_rows);
    if (step->blocks == FA2I_BLOCKS_HEAD_TILES)
        return ceil_div(key_tiles(recipe, problem), step->block_rows) * problem->heads_kv;
    const int64_t resident = (int64_t)card->sm_count * step->block_rows;
    return step->blocks == FA2I_BLOCKS_RESIDENT_ROW_TILES && resident < main_blocks ? resident : main_blocks;
}

fa2i_int8_layout fa2i_forward_int8_layout(const fa2i_recipe *recipe, const fa2_problem *problem)
{
    const size_t row_bytes = (size_t)ceil_div(problem->head_dim, 32) * 32, heads = (size_t)problem->heads_kv;
    fa2i_int8_layout out = {.tiles = (size_t)key_tiles(recipe, problem),
                            .warps = (size_t)fa2i_recipe_step(recipe, FA2I_STEP_QUANTISE)->threads / 32};
    const size_t keys = (size_t)recipe->keys;
    size_t value_bytes = 0;
    out.scales = fa2i_recipe_rounds_values(recipe) ? 4 * (keys / 32) : 4; /* kScales in forward/int8_keys.cuh */
    if (recipe->workspace == FA2I_WORKSPACE_INT8_KEYS_AND_VALUES)
        value_bytes = (keys * (row_bytes + 8) + 1023) / 1024 * 1024; /* kVTileBytes in hopper/fwd_shape.cuh */
    else if (recipe->workspace == FA2I_WORKSPACE_INT8_KEYS_AND_COLUMNS)
        value_bytes = keys * row_bytes; /* forward/fp8_columns.cuh */
    out.means_at = heads * out.tiles * (keys * row_bytes + value_bytes);
    out.scales_at = out.means_at + heads * (size_t)problem->batch * row_bytes * sizeof(float);
    out.counts_at = out.scales_at + heads * out.tiles * out.scales * sizeof(float);
    return out;
}

static fa2_status count_blocks(const fa2i_card *card, const fa2i_recipe *recipe, const fa2_problem *problem,
                               int64_t main_blocks, fa2i_grid *grid)
{
    for (int i = 0; i < recipe->step_count; i++) {
        const fa2i_step *step = &recipe->steps[i];
        const int64_t blocks = blocks_of(card, recipe, step, problem, main_blocks);
        if (blocks > INT32_MAX)
            return too_many(problem, ceil_div(problem->seq_q, step->block_rows), 1);
        if (step->role != FA2I_STEP_COMBINE || grid->splits > 1)
            grid->blocks[i] = (unsigned)blocks;
    }
    return fa2i_clusters_check(recipe, grid->blocks);
}

/* Returns the bytes of the column keys that the blocks of the prepare step write. There are fewer than 2^30 keys. */
static size_t column_key_bytes(const fa2i_recipe *recipe, const fa2i_grid *grid)
{
    const fa2i_step *step = fa2i_recipe_step(recipe, FA2I_STEP_PREPARE);
    const size_t keys = (size_t)grid->blocks[step - recipe->steps] * (size_t)step->block_rows;
    return COLUMN_KEYS_AT + keys * COLUMN_KEY_BYTES;
}

/* K in 8-bit integers: rows of whole k32 steps, a mean key for each sequence, scales for each tile, and a count of each
 * warp that rounded it. V in 8 bits, and a scale for each tile of it. */
static void add_int8_keys(const fa2i_recipe *recipe, const fa2_problem *problem, fa2i_grid *grid)
{
    const fa2i_int8_layout layout = fa2i_forward_int8_layout(recipe, problem);
    const size_t tiles = layout.tiles * (size_t)problem->heads_kv;
    grid->partial_bytes = layout.means_at;
    grid->workspace_bytes = layout.counts_at + tiles * layout.warps * sizeof(uint32_t);
    if (fa2i_recipe_rounds_values(recipe))
        grid->workspace_bytes += tiles * sizeof(float);
}

fa2_status fa2i_forward_grid(const fa2i_card *card, const fa2i_recipe *recipe, const fa2_problem *problem,
                             fa2i_grid *ret_grid)
{
    const int64_t group = recipe->pack ? problem->heads_q / problem->heads_kv : 1;
    const int64_t rows = problem->seq_q * group; /* kernels count these in int */
    const int64_t row_tiles =                    /* of a head; packed: of all batches */
        problem->varlen ? fa2i_forward_total_q(problem) * group / recipe->rows + problem->batch
                        : ceil_div(rows, recipe->rows);
    const int64_t tiles = row_tiles * (problem->heads_q / group); /* of a batch; < 2^46 */
    const size_t elem_bytes = (size_t)fa2i_elem_bytes(problem->dtype);
    int64_t blocks = 0, partial_rows = 0;
    fa2i_grid grid = {.row_tiles = (int32_t)row_tiles, .splits = 1};
    fa2_status st = FA2_OK;
    if (rows > INT32_MAX || row_tiles > INT32_MAX)
        return too_many(problem, row_tiles, 1);
    if (recipe->waves > 0)
        FA2_TRY(divide_keys(card, recipe, problem, problem->varlen ? row_tiles : row_tiles * problem->batch, &grid));
    FA2_TRY(spread_main(recipe, problem, tiles, &grid, &blocks, &partial_rows));
    FA2_TRY(count_blocks(card, recipe, problem, blocks, &grid));
    if (grid.splits > 1) {
        grid.partial_bytes = (size_t)partial_rows * (size_t)fa2i_head_dim_v(problem) * sizeof(float);
        grid.workspace_bytes = grid.partial_bytes + (size_t)partial_rows * sizeof(float);
    }
    if (fa2i_recipe_has_queries(recipe)) {
        grid.queries_at = (grid.workspace_bytes + FA2I_WORKSPACE_ALIGN_BYTES - 1) / FA2I_WORKSPACE_ALIGN_BYTES *
                          FA2I_WORKSPACE_ALIGN_BYTES;
        grid.workspace_bytes = grid.queries_at + (size_t)all_rows(problem) * (size_t)problem->head_dim * elem_bytes;
    }
    if (recipe->workspace == FA2I_WORKSPACE_COUNTER)
        grid.workspace_bytes = sizeof(uint32_t);
    if (recipe->workspace == FA2I_WORKSPACE_COLUMN_KEYS)
        grid.workspace_bytes = column_key_bytes(recipe, &grid);
    if (fa2i_recipe_rounds(recipe))
        add_int8_keys(recipe, problem, &grid);
    if (recipe->workspace == FA2I_WORKSPACE_SCORES) {
        if (all_rows(problem) > INT64_MAX / 2 / problem->seq_k)
            FA2_TRY(fa2i_fail(FA2_E_UNSUPPORTED,
                              "the scores of %lld rows and %d keys are more bytes than can be counted",
                              (long long)all_rows(problem), (int)problem->seq_k));
        grid.workspace_bytes = (size_t)all_rows(problem) * (size_t)problem->seq_k * elem_bytes;
    }
    *ret_grid = grid;
done:
    return st;
}
