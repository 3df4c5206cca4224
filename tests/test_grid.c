/* The grid of a launch: blocks, splits, workspace, limits. */
#include <stdint.h>
#include "check.h"
#include "recipe_fixture.h"
#include "runtime/ops/op.h"

static const fa2i_card card = {.name = "test", .arch = 86, .sm_count = 100};
static fa2i_recipe plain, split; /* set by main */

static fa2_problem decode(int batch, int heads_q, int heads_kv, int seq_k)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .batch = batch,
                         .heads_q = heads_q,
                         .heads_kv = heads_kv,
                         .seq_q = 1,
                         .seq_k = seq_k,
                         .head_dim = 128};
}

static fa2i_grid grid_of(const fa2i_recipe *recipe, fa2_problem problem)
{
    fa2i_grid grid = {0};
    CHECK_EQ(fa2i_op_of(&problem)->grid(&card, recipe, &problem, &grid), FA2_OK);
    return grid;
}

static void test_plain(void)
{
    fa2_problem problem = decode(2, 8, 2, 4096);
    problem.seq_q = 100;
    fa2i_grid grid = grid_of(&plain, problem);
    CHECK_EQ(grid.row_tiles, 2);
    CHECK_EQ(grid.blocks[0], 2 * 8 * 2);
    CHECK_EQ(grid.splits, 1);
    CHECK_EQ(grid.blocks[1], 0);
    CHECK_EQ(grid.workspace_bytes, 0);
}

/* Blocks that process several row tiles in turn: no more blocks than the card holds. */
static void test_resident(void)
{
    fa2i_recipe resident = plain;
    fa2_problem problem = decode(2, 8, 2, 4096);
    resident.steps[0].blocks = FA2I_BLOCKS_RESIDENT_ROW_TILES;
    resident.steps[0].block_rows = 2;
    problem.seq_q = 100;
    CHECK_EQ(grid_of(&resident, problem).blocks[0], 2 * 8 * 2);
    problem.batch = 100;
    fa2i_grid grid = grid_of(&resident, problem);
    CHECK_EQ(grid.blocks[0], 100 * 2);
    CHECK_EQ(grid.row_tiles, 2);
    CHECK_EQ(grid.workspace_bytes, 0);
}

/* The same with a counter for the next tile, which one block sets to 0 before. */
static void test_counter(void)
{
    static const char text[] = "op=forward abi=2 rows=64 keys=64 workspace=counter; "
                               "f_prepare role=prepare threads=32 smem=0 blocks=one; "
                               "f role=main threads=128 smem=0 blocks=resident_row_tiles";
    fa2i_recipe recipe;
    fa2_problem problem = decode(100, 8, 2, 4096);
    CHECK_EQ(fa2i_recipe_parse(text, &recipe), FA2_OK);
    fa2i_grid grid = grid_of(&recipe, problem);
    CHECK_EQ(grid.blocks[0], 1);
    CHECK_EQ(grid.blocks[1], 100);
    CHECK_EQ(grid.workspace_bytes, 4);
    CHECK_EQ(grid.partial_bytes, 0);
}

/* Dropout keys of columns cover whole key tiles, and whole blocks of the step before. */
static void test_column_keys(void)
{
    static const char text[] = "op=forward abi=3 rows=64 keys=96 workspace=column_keys; "
                               "f_prepare role=prepare threads=128 smem=0 blocks=keys/256; "
                               "f role=main threads=128 smem=0 blocks=row_tiles";
    static const struct {
        int32_t seq_k;
        unsigned blocks;
    } cases[] = {{1, 1}, {192, 1}, {193, 2}, {480, 2}, {481, 3}, {1 << 29, (1 << 21) + 1}};
    fa2i_recipe recipe;
    CHECK_EQ(fa2i_recipe_parse(text, &recipe), FA2_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fa2i_grid grid = grid_of(&recipe, decode(3, 8, 2, cases[i].seq_k));
        CHECK_EQ(grid.blocks[0], cases[i].blocks);
        CHECK_EQ(grid.blocks[1], 3 * 8);
        CHECK_EQ(grid.workspace_bytes, 128 + (size_t)cases[i].blocks * 256 * 8);
        CHECK_EQ(grid.partial_bytes, 0);
    }
}

/* K in 8-bit integers: whole tiles of each sequence, and rows of whole 32 columns. Packed sequences have tiles where
 * they may begin. Four scales and a count of each warp for a tile, and a mean for each sequence and key head. */
static void test_int8_keys(void)
{
    static const char text[] = "op=forward abi=2 rows=128 keys=64 workspace=int8_keys; "
                               "f_quantise role=quantise threads=256 smem=0 blocks=head_tiles/4; "
                               "f role=main threads=128 smem=0 blocks=row_tiles";
    fa2i_recipe recipe;
    fa2_problem problem = decode(3, 8, 2, 650);
    CHECK_EQ(fa2i_recipe_parse(text, &recipe), FA2_OK);
    problem.head_dim = 72;
    fa2i_grid grid = grid_of(&recipe, problem);
    size_t tiles = 2 * 3 * 11;
    CHECK_EQ(grid.blocks[0], 2 * 9); /* 33 tiles of a key head */
    CHECK_EQ(grid.blocks[1], 3 * 8);
    CHECK_EQ(grid.partial_bytes, tiles * 64 * 96);
    CHECK_EQ(grid.workspace_bytes, tiles * 64 * 96 + tiles * (4 * 4 + 8 * 4) + 3 * 2 * 96 * 4);
    problem.varlen = 1;
    problem.total_q = 3;
    problem.total_k = 1000;
    grid = grid_of(&recipe, problem);
    tiles = 2 * (1000 / 64 + 3);
    CHECK_EQ(grid.blocks[0], 2 * 5);
    CHECK_EQ(grid.workspace_bytes, tiles * 64 * 96 + tiles * (4 * 4 + 8 * 4) + 3 * 2 * 96 * 4);
}

/* Sequences with lengths: as many work shares as fit the card, and one more for each row tile. */
static void test_lengths(void)
{
    fa2_problem problem = decode(32, 32, 8, 4096);
    problem.seqused = 1;
    fa2i_grid grid = grid_of(&split, problem);
    CHECK_EQ(grid.splits, 100 / 8);
    CHECK_EQ(grid.slots, 12 + 32);
    CHECK_EQ(grid.blocks[0], 8 * 44);
    CHECK_EQ(grid.blocks[1], 32 * 32 / 4);
    CHECK_EQ(grid.partial_bytes, 8 * 44 * split.rows * 128 * 4);
    CHECK_EQ(grid.workspace_bytes, 8 * 44 * split.rows * 129 * 4);
    problem.seq_k = split.keys; /* one tile cannot be divided */
    grid = grid_of(&split, problem);
    CHECK_EQ(grid.splits, 1);
    CHECK_EQ(grid.slots, 32);
    CHECK_EQ(grid.blocks[1], 0);
    CHECK_EQ(grid.workspace_bytes, 0);
    CHECK_EQ(grid_of(&plain, problem).blocks[0], 32 * 32);
    CHECK_EQ(grid_of(&plain, problem).slots, 0);
}

/* A step before appends new keys, and rotates Q into the workspace, after the splits' part. */
static void test_append(void)
{
    fa2_problem problem = decode(4, 32, 8, 4096);
    fa2i_recipe recipe;
    CHECK_EQ(fa2i_recipe_parse("op=forward abi=2 rows=64 keys=64 workspace=queries; "
                               "a role=prepare threads=256 smem=0 blocks=new_rows/16; "
                               "b role=main threads=128 smem=0 blocks=row_tiles",
                               &recipe),
             FA2_OK);
    problem.append = 1;
    problem.rotary = FA2_ROTARY_HALVES;
    problem.rotary_dim = 64;
    fa2i_grid grid = grid_of(&recipe, problem);
    CHECK_EQ(grid.blocks[0], 4 * (32 + 2 * 8) / 16);
    CHECK_EQ(grid.blocks[1], 4 * 32);
    CHECK_EQ(grid.queries_at, 0);
    CHECK_EQ(grid.workspace_bytes, 4 * 32 * 128 * 2);
    problem.rotary = FA2_ROTARY_NONE;
    problem.rotary_dim = 0;
    CHECK_EQ(grid_of(&recipe, problem).blocks[0], 4 * 2 * 8 / 16);
    recipe = split;
    recipe.workspace = FA2I_WORKSPACE_PARTIALS_AND_QUERIES;
    problem = decode(1, 3, 1, 4096);
    const fa2i_grid without = grid_of(&split, problem);
    grid = grid_of(&recipe, problem);
    CHECK(without.splits > 1 && grid.partial_bytes == without.partial_bytes);
    CHECK(grid.queries_at >= without.workspace_bytes && grid.queries_at % 256 == 0);
    CHECK_EQ(grid.workspace_bytes, grid.queries_at + 3 * 128 * 2);
}

/* Packed sequences: the tiles of all rows, and one more for each sequence. */
static void test_packed(void)
{
    fa2_problem problem = decode(64, 8, 2, 16384);
    problem.seq_q = 16384;
    problem.varlen = 1;
    problem.total_q = problem.total_k = 16384 + 63 * 64;
    fa2i_grid grid = grid_of(&plain, problem);
    CHECK_EQ(grid.row_tiles, (16384 + 63 * 64) / plain.rows + 64);
    CHECK_EQ(grid.blocks[0], 8 * grid.row_tiles);
    grid = grid_of(&split, problem);
    CHECK_EQ(grid.slots, (16384 + 63 * 64) * 4 / split.rows + 64 + 100 / 2);
    CHECK_EQ(grid.blocks[0], 2 * grid.slots);
    CHECK_EQ(grid.blocks[1], 8 * (16384 + 63 * 64) / 4);
    /* Partial results: of twice the blocks that share the keys, or of all blocks. */
    CHECK_EQ(grid.workspace_bytes, 2 * 2 * (100 / 2) * split.rows * 129 * 4);
    fa2_problem few = problem;
    few.batch = 1;
    few.seq_q = few.total_q = 1;
    few.total_k = few.seq_k;
    CHECK_EQ(grid_of(&split, few).workspace_bytes, 2 * (1 + 100 / 2) * split.rows * 129 * 4);
    problem.total_q = 0; /* all sequences have the largest length */
    CHECK_EQ(grid_of(&plain, problem).row_tiles, 64 * 16384 / plain.rows + 64);
}

static void test_split(void)
{
    /* 8 key heads of 4 rows each: 8 blocks on 100 SMs, so 12 splits of 64 tiles: 6 tiles each, 11 splits. */
    fa2i_grid grid = grid_of(&split, decode(1, 32, 8, 4096));
    CHECK_EQ(grid.row_tiles, 1);
    CHECK_EQ(grid.splits, 11);
    CHECK_EQ(grid.blocks[0], 8 * 11);
    CHECK_EQ(grid.blocks[1], 8); /* four of 32 rows each */
    CHECK_EQ(grid.partial_bytes, 11 * 32 * 128 * 4);
    CHECK_EQ(grid.workspace_bytes, 11 * 32 * 129 * 4);
    /* Fewer keys than splits. */
    CHECK_EQ(grid_of(&split, decode(1, 32, 8, 130)).splits, 3);
    CHECK_EQ(grid_of(&split, decode(1, 32, 8, 64)).workspace_bytes, 0);
    /* Enough blocks: no split, but the heads of a group still share a tile. */
    grid = grid_of(&split, decode(32, 32, 8, 4096));
    CHECK_EQ(grid.splits, 1);
    CHECK_EQ(grid.blocks[0], 32 * 8);
    /* A card with many SMs meets another limit. */
    fa2i_card wide = card;
    wide.sm_count = 10000;
    const fa2_problem one = decode(1, 1, 1, 1 << 20);
    CHECK_EQ(fa2i_op_of(&one)->grid(&wide, &split, &one, &grid), FA2_OK);
    CHECK(grid.splits <= split.max_splits && grid.splits > split.max_splits / 2);
}

/* Every key tile belongs to exactly one split, and no split is empty. */
static void test_shares(void)
{
    for (int seq_k = 1; seq_k < 9000; seq_k += 61) {
        const fa2i_grid grid = grid_of(&split, decode(1, 8, 8, seq_k));
        const int steps = (seq_k + 63) / 64, share = (steps + grid.splits - 1) / grid.splits;
        CHECK((grid.splits - 1) * share < steps && grid.splits * share >= steps);
    }
}

/* fa2.h warns that fewer keys can need more workspace: they can be divided more evenly. */
static void test_workspace_is_not_monotone(void)
{
    const fa2i_grid shorter = grid_of(&split, decode(1, 32, 8, 11 * 64)),
                    longer = grid_of(&split, decode(1, 32, 8, 13 * 64));
    CHECK(shorter.workspace_bytes > longer.workspace_bytes && longer.workspace_bytes > 0);
}

/* A grid has at most 2^31 - 1 blocks, even where the product does not fit 64 bits. */
static void test_limit(void)
{
    fa2i_grid grid;
    fa2_problem large = decode(INT32_MAX, INT32_MAX, INT32_MAX, 1);
    large.seq_q = INT32_MAX;
    CHECK_EQ(fa2i_op_of(&large)->grid(&card, &plain, &large, &grid), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "33554432 query tiles x 2147483647 heads");
    large = decode(1 << 16, 1 << 15, 1, 1); /* 2^31 blocks */
    CHECK_EQ(fa2i_op_of(&large)->grid(&card, &plain, &large, &grid), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "(2147483647)");
    large = decode(1, 1 << 16, 1, 1); /* packed: 2^31 rows */
    large.seq_q = 1 << 15;
    CHECK_EQ(fa2i_op_of(&large)->grid(&card, &split, &large, &grid), FA2_E_UNSUPPORTED);
}

int main(void)
{
    plain = plain_recipe("fwd", 128, 64, 64, 0);
    split = split_recipe("fwd", 128, 16, 64, 0, 1);
    test_plain();
    test_resident();
    test_counter();
    test_column_keys();
    test_int8_keys();
    test_split();
    test_lengths();
    test_append();
    test_packed();
    test_shares();
    test_workspace_is_not_monotone();
    test_limit();
    return check_done();
}
