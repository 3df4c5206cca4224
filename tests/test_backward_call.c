/*
 * Backward's treatment of a call: refusals with their messages, unwanted gradients, the grid of each way to sum dQ, the
 * parameter block, and the work.
 */
#include <math.h>
#include "check.h"
#include "runtime/ops/op.h"
#include "good_backward_args.h" /* last, because parameters named `problem` would shadow its variable */

static const char added_recipe[] = "op=backward abi=1 rows=64 keys=32 columns=64 workspace=rows_and_dq; "
                                   "bwd_sm80_prepare role=prepare threads=256 smem=0 blocks=padded_rows/32; "
                                   "bwd_sm80 role=main threads=128 smem=49152 blocks=key_tiles; "
                                   "bwd_sm80_convert role=convert threads=128 smem=0 blocks=padded_rows/32";
/* Blocks add to dQ itself, in turns. */
static const char direct_recipe[] = "op=backward abi=1 rows=64 keys=32 workspace=rows_and_turns; "
                                    "k_prepare role=prepare threads=256 smem=0 blocks=padded_rows/32; "
                                    "k role=main threads=128 smem=0 blocks=key_tiles";
static const char packed_recipe[] = "op=backward abi=2 rows=64 keys=32 columns=64 workspace=rows_and_dq; "
                                    "bwd_sm80_prepare role=prepare threads=256 smem=0 blocks=padded_rows/32; "
                                    "bwd_sm80 role=main threads=128 smem=49152 blocks=key_tiles; "
                                    "bwd_sm80_convert role=convert threads=128 smem=0 blocks=query_tiles/32";
static const char apart_recipe[] = "op=backward abi=1 rows=64 keys=32 workspace=rows; "
                                   "bwd_sm80_prepare role=prepare threads=256 smem=0 blocks=padded_rows/32; "
                                   "bwd_sm80 role=main threads=128 smem=49152 blocks=key_and_query_tiles/64";
static const char alone_recipe[] = "op=backward abi=1 rows=64 keys=32; "
                                   "bwd_sm80 role=main threads=128 smem=49152 blocks=key_and_query_tiles/64";

static const char whole_recipe[] = "op=backward abi=1 rows=64 keys=128 columns=64 workspace=dq_of_tiles; "
                                   "bwd_sm80 role=main threads=128 smem=49152 blocks=key_heads; "
                                   "bwd_sm80_convert role=convert threads=128 smem=0 blocks=padded_rows/32";

static const char split_recipe[] =
    "op=backward abi=1 rows=32 keys=128 waves=2 splits=16 columns=64 workspace=rows_and_dq; "
    "bwd_sm80_prepare role=prepare threads=256 smem=0 blocks=padded_rows/32; "
    "bwd_sm80 role=main threads=128 smem=49152 blocks=key_tiles; "
    "bwd_sm80_combine role=combine threads=128 smem=16384 blocks=key_tile_sums; "
    "bwd_sm80_convert role=convert threads=128 smem=0 blocks=padded_rows/32";

static const char heads_recipe[] =
    "op=backward abi=1 rows=64 keys=128 heads=2 columns=64 workspace=rows_and_dq suffix=a; "
    "bwd_sm90_prepare role=prepare threads=256 smem=0 blocks=padded_rows/32; "
    "bwd_sm90 role=main threads=384 smem=49152 blocks=key_tiles; "
    "bwd_sm90_combine role=combine threads=256 smem=16384 blocks=key_tile_sums; "
    "bwd_sm90_convert role=convert threads=128 smem=0 blocks=padded_rows/32";

static const fa2i_card card = {.name = "test", .arch = 86, .sm_count = 100};
static fa2i_grid grid_of(const char *recipe_text, const fa2_problem *of)
{
    fa2i_recipe recipe;
    fa2i_grid grid = {0};
    CHECK_EQ(fa2i_recipe_parse(recipe_text, &recipe), FA2_OK);
    CHECK_EQ(fa2i_op_of(of)->grid(&card, &recipe, of, &grid), FA2_OK);
    return grid;
}

static fa2_status check_args(const fa2_backward_args *args, const fa2i_grid *grid)
{
    return fa2i_op_of(&problem)->check_args(&problem, args, grid);
}

static void check_bad(const fa2_backward_args *args, const char *said)
{
    const fa2i_grid grid = grid_of(alone_recipe, &problem);
    CHECK_EQ(check_args(args, NULL), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), said);
    CHECK_EQ(check_args(args, &grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), said);
}

static void test_refusals(void)
{
    static const struct {
        size_t offset;
        int64_t value;
        const char *said;
    } bad[] = {
#define AT(member) offsetof(fa2_backward_args, member)
        {AT(lse), 0, "lse is NULL; backward reads the LSE that forward gave"},
        {AT(lse), 0x9000002, "lse is 0x9000002; it must be a multiple of 4 bytes"},
        {AT(q.data), 0, "q.data is NULL"},
        {AT(o.data), 0, "o.data is NULL"},
        {AT(d_o.data), 0, "d_o.data is NULL"},
        {AT(d_o.data), 0x5000008, "d_o.data is 0x5000008; it must be a multiple of 16"},
        {AT(o.stride_seq), 60, "o.stride_seq is 60; it must be a multiple of 8"},
        {AT(o.stride_seq), 56, "o.stride_seq is 56; it must be at least 64"},
        {AT(d_o.stride_head), -64, "d_o.stride_head is -64"},
        {AT(dq.stride_head), 0, "dq.stride_head is 0; it must be at least 64"},
        {AT(dk.stride_seq), 8, "dk.stride_seq is 8"},
        {AT(dq.data), 0x1000000, "dq shares memory with q"},
        {AT(dk.data), 0x4000000, "dk shares memory with o"},
        {AT(dv.data), 0x5000000, "dv shares memory with d_o"},
        {AT(dv.data), 0x9000000, "dv shares memory with lse"},
        {AT(dk.data), 0x6000000, "dk shares memory with dq"},
        {AT(dv.data), 0x7000000, "dv shares memory with dk"},
        {AT(workspace_bytes), 5, "workspace is NULL, but workspace_bytes is 5"},
        {AT(workspace), 0x10000080, "it must be a multiple of 256 bytes"},
#undef AT
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fa2_backward_args args = good_args();
        memcpy((char *)&args + bad[i].offset, &bad[i].value, sizeof bad[i].value);
        check_bad(&args, bad[i].said);
    }
    fa2_backward_args args = good_args();
    args.softmax_scale = NAN;
    check_bad(&args, "softmax_scale is ");
    fa2_problem fp32 = problem;
    fp32.dtype = FA2_FP32;
    args = good_args();
    args.d_o.stride_seq += 4; /* 16 bytes */
    args.dk.stride_seq += 4;
    args.dk.stride_batch += 4 * problem.seq_k;
    CHECK_EQ(fa2i_op_of(&fp32)->check_args(&fp32, &args, NULL), FA2_OK);
    args.dk.stride_seq += 2;
    CHECK_EQ(fa2i_op_of(&fp32)->check_args(&fp32, &args, NULL), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "; it must be a multiple of 4 elements");
    args = good_args();
    args.dq.data = args.dk.data = args.dv.data = NULL;
    check_bad(&args, "at least one gradient is wanted");
}

static void test_unwanted(void)
{
    const fa2i_grid grid = grid_of(alone_recipe, &problem);
    for (int wanted = 0; wanted < 3; wanted++) {
        fa2_backward_args args = good_args();
        fa2_tensor *const gradients[] = {&args.dq, &args.dk, &args.dv};
        for (int i = 0; i < 3; i++)
            if (i != wanted)
                *gradients[i] = (fa2_tensor){NULL, 1, -3, 5}; /* these strides are not read */
        CHECK_EQ(check_args(&args, &grid), FA2_OK);
        fa2i_params params;
        fa2i_op_of(&problem)->fill(&grid, &problem, &args, &params);
        CHECK((params.backward.dq != 0) == (wanted == 0));
        CHECK((params.backward.dk != 0) == (wanted == 1));
        CHECK((params.backward.dv != 0) == (wanted == 2));
        CHECK(fa2i_op_of(&problem)->does_without(FA2I_STEP_CONVERT, &args) == (wanted != 0));
        CHECK(!fa2i_op_of(&problem)->does_without(FA2I_STEP_MAIN, &args));
    }
}

static void test_workspace(void)
{
    const fa2i_grid grid = grid_of(added_recipe, &problem);
    fa2_backward_args args = good_args();
    CHECK_EQ(check_args(&args, NULL), FA2_OK);
    CHECK_EQ(check_args(&args, &grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "workspace_bytes is 0; this problem needs 540672");
    args.workspace = (void *)0x10000000;
    args.workspace_bytes = grid.workspace_bytes;
    CHECK_EQ(check_args(&args, &grid), FA2_OK);
    args.workspace = args.dv.data;
    CHECK_EQ(check_args(&args, &grid), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "workspace shares memory with dv");
    /* Without dQ no sums of it are needed. */
    args.workspace = (void *)0x10000000;
    args.workspace_bytes = grid.rows_bytes;
    CHECK_EQ(check_args(&args, &grid), FA2_E_INVALID);
    args.dq.data = NULL;
    CHECK_EQ(check_args(&args, &grid), FA2_OK);
    args.workspace_bytes--;
    CHECK_EQ(check_args(&args, &grid), FA2_E_INVALID);
    fa2i_params params;
    args.workspace_bytes++;
    fa2i_op_of(&problem)->fill(&grid, &problem, &args, &params);
    CHECK(params.backward.rows == 0x10000000 && params.backward.dq_sum == 0);
}

static void test_grid(void)
{
    /* 2 x 8 heads x 2 tiles of 64 queries: 2048 padded rows; 2 x 2 key heads x 7 tiles of 32 keys. */
    fa2i_grid grid = grid_of(added_recipe, &problem);
    CHECK(grid.row_tiles == 2 && grid.key_tiles == 7);
    CHECK(grid.blocks[0] == 64 && grid.blocks[1] == 28 && grid.blocks[2] == 64);
    CHECK_EQ(grid.rows_bytes, 8 * 2048);
    CHECK_EQ(grid.workspace_bytes, 8 * 2048 + 4 * 2048 * 64);
    char turns[sizeof added_recipe + 16];
    snprintf(turns, sizeof turns, "%.*s%s", (int)(strstr(added_recipe, "rows_and_dq") - added_recipe), added_recipe,
             "rows_dq_and_turns");
    strcat(turns, strstr(added_recipe, "rows_and_dq") + strlen("rows_and_dq"));
    grid = grid_of(turns, &problem);
    CHECK_EQ(grid.workspace_bytes, 8 * 2048 + 4 * 2048 * 64 + 4 * (16 * 2 + 1));
    grid = grid_of(apart_recipe, &problem);
    CHECK(grid.blocks[0] == 64 && grid.blocks[1] == 28 + 16 * 2);
    CHECK_EQ(grid.workspace_bytes, 8 * 2048);
    grid = grid_of(direct_recipe, &problem);
    CHECK(grid.rows_bytes == 8 * 2048 && grid.workspace_bytes == 8 * 2048 + 4 * (16 * 2 + 1));
    grid = grid_of(alone_recipe, &problem);
    CHECK(grid.blocks[0] == 28 + 16 * 2 && grid.workspace_bytes == 0);
    /* A head's keys are two tiles of 128: sums of dQ are converted. With one tile there are no sums to convert. */
    grid = grid_of(whole_recipe, &problem);
    CHECK(grid.key_tiles == 2 && grid.blocks[0] == 2 * 2 && grid.blocks[1] == 64);
    CHECK(grid.rows_bytes == 0 && grid.workspace_bytes == 4 * 2048 * 64);
    fa2_problem brief = problem;
    brief.seq_k = 128;
    grid = grid_of(whole_recipe, &brief);
    CHECK(grid.key_tiles == 1 && grid.blocks[0] == 2 * 2 && grid.blocks[1] == 0);
    CHECK_EQ(grid.workspace_bytes, 0);
}

/* Blocks that share the queries of a key tile: two for each SM, but no more than there are query tiles. */
static void test_splits(void)
{
    /* 4 key heads x 2 tiles of 128 keys; 16 heads x 4 tiles of 32 queries, 16 of a key head's group. */
    fa2i_grid grid = grid_of(split_recipe, &problem);
    CHECK(grid.splits == 16 && grid.blocks[1] == 8 * 16 && grid.blocks[2] == 2 * 8);
    CHECK_EQ(grid.partial_bytes, 16 * 8 * 2 * 128 * 64 * 4);
    CHECK_EQ(grid.workspace_bytes, grid.partial_bytes + 8 * 2048 + 4 * 2048 * 64);
    fa2_backward_args args = good_args();
    args.workspace = (void *)0x10000000;
    args.workspace_bytes = grid.workspace_bytes;
    fa2i_params params;
    const fa2i_op *op = fa2i_op_of(&problem);
    CHECK_EQ(op->check_args(&problem, &args, &grid), FA2_OK);
    op->fill(&grid, &problem, &args, &params);
    CHECK(params.backward.splits == 16 && params.backward.rows == 0x10000000 + grid.partial_bytes);
    CHECK_EQ(params.backward.dq_sum, params.backward.rows + grid.rows_bytes);
    CHECK(!op->does_without(FA2I_STEP_COMBINE, &args));
    args.dk.data = args.dv.data = NULL;
    CHECK(op->does_without(FA2I_STEP_COMBINE, &args));
    fa2_problem some = problem;
    some.seq_q = 32; /* 4 query tiles per group */
    CHECK_EQ(grid_of(split_recipe, &some).splits, 4);
    some.batch = 13; /* 52 blocks: 3 times as many are fewer than 200 */
    CHECK_EQ(grid_of(split_recipe, &some).splits, 3);
    some.batch = 26; /* 104 blocks are enough */
    grid = grid_of(split_recipe, &some);
    CHECK(grid.splits == 1 && grid.partial_bytes == 0 && grid.blocks[2] == 0);
}

/* Blocks with some query heads of a group: one part of dK and dV, to which all add, and counters. */
static void test_heads(void)
{
    fa2_problem some = problem;
    some.batch = 1;
    some.heads_q = 10;
    some.heads_kv = 2;
    some.seq_q = some.seq_k = 300;
    some.head_dim = 64;
    const int key_tiles = 2 * 3;
    fa2i_grid grid = grid_of(heads_recipe, &some);
    CHECK(grid.splits == 3 && grid.blocks[1] == key_tiles * 3 && grid.blocks[2] == 2 * key_tiles);
    CHECK_EQ(grid.partial_bytes, key_tiles * 2 * 128 * 64 * 4 + 128); /* 13 counters */

    some.heads_q = 4; /* a block has the whole group */
    grid = grid_of(heads_recipe, &some);
    CHECK(grid.splits == 1 && grid.partial_bytes == 0 && grid.blocks[1] == key_tiles && grid.blocks[2] == 0);
}

/* Packed sequences: the tiles of all rows, and one more for each sequence. */
static void test_packed(void)
{
    fa2_problem packed = problem;
    packed.batch = 5;
    packed.varlen = 1;
    packed.total_q = 230;
    packed.total_k = 330;
    const int q_tiles = 230 / 64 + 5, k_tiles = 330 / 32 + 5;
    fa2i_grid grid = grid_of(packed_recipe, &packed);
    CHECK(grid.row_tiles == q_tiles && grid.key_tiles == k_tiles);
    /* LSE and delta: each sequence in multiples of eight rows. Sums of dQ: its rows. */
    const int prepared = ((230 / 8 + 5) * 8 + 31) / 32 * 32;
    CHECK(grid.blocks[0] == 8 * prepared / 32 && grid.blocks[1] == 2 * k_tiles);
    CHECK_EQ(grid.blocks[2], 8 * (230 / 32 + 5));
    CHECK_EQ(grid.workspace_bytes, 8 * 8 * prepared + 4 * 64 * 8 * 230);
    CHECK_EQ(grid_of(alone_recipe, &packed).blocks[0], 2 * k_tiles + 8 * q_tiles);
    fa2_backward_args args = good_args();
    const fa2i_op *op = fa2i_op_of(&packed);
    CHECK_EQ(op->check_args(&packed, &args, NULL), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "cu_seqlens_q is NULL, but problem.varlen is 1");
    args.cu_seqlens_q = (const int32_t *)0xa000000;
    args.cu_seqlens_k = (const int32_t *)args.dk.data;
    CHECK_EQ(op->check_args(&packed, &args, NULL), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "dk shares memory with cu_seqlens_k");
    args.cu_seqlens_k = (const int32_t *)0xa001000;
    args.q.stride_batch = args.dk.stride_batch = -1; /* not read */
    CHECK_EQ(op->check_args(&packed, &args, NULL), FA2_OK);
    args.dq.data = (char *)args.q.data + args.q.stride_seq * 2 * 229;
    CHECK_EQ(op->check_args(&packed, &args, NULL), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), "dq shares memory with q");
    fa2_problem alike = problem; /* five sequences of the maximum length */
    alike.batch = 5;
    packed.total_q = packed.total_k = 0;
    CHECK(op->bytes(&packed) == op->bytes(&alike) && op->flop(&packed) == op->flop(&alike));
    packed.batch = 1 << 20;
    packed.total_q = packed.total_k = 1 << 29;
    fa2i_recipe recipe;
    CHECK_EQ(fa2i_recipe_parse(added_recipe, &recipe), FA2_OK);
    packed.heads_q = packed.heads_kv = 1 << 16;
    CHECK_EQ(op->grid(&card, &recipe, &packed, &grid), FA2_E_UNSUPPORTED);
}

static void test_too_large(void)
{
    fa2i_recipe recipe;
    fa2i_grid grid = {.splits = 9};
    fa2_problem large = problem;
    const fa2i_op *op = fa2i_op_of(&problem);
    CHECK_EQ(fa2i_recipe_parse(added_recipe, &recipe), FA2_OK);
    large.seq_k = 1 << 29;
    large.batch = 64;
    CHECK_EQ(op->grid(&card, &recipe, &large, &grid), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "16777216 key tiles x 8 heads x 64 batches");
    large = problem;
    large.seq_q = 1 << 26;
    large.batch = 1 << 10;
    CHECK_EQ(op->grid(&card, &recipe, &large, &grid), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "query tiles");
    large = problem;
    large.head_dim = 128; /* another kernel's recipe */
    CHECK_EQ(op->grid(&card, &recipe, &large, &grid), FA2_E_UNSUPPORTED);
    CHECK_CONTAINS(fa2_last_message(), "columns is 64 in the recipe; head_dim is 128");
    CHECK_EQ(grid.splits, 9);
}

static void test_params(void)
{
    const fa2i_grid grid = grid_of(added_recipe, &problem);
    fa2_backward_args args = good_args();
    fa2i_params params;
    args.workspace = (void *)0x10000000;
    args.softmax_scale = 0.25f;
    fa2i_op_of(&problem)->fill(&grid, &problem, &args, &params);
    const fa2i_backward_params *p = &params.backward;
    CHECK(p->q == 0x1000000 && p->d_o == 0x5000000 && p->dv == 0x8000000 && p->lse == 0x9000000);
    CHECK(p->rows == 0x10000000 && p->dq_sum == 0x10000000 + 8 * 2048);
    CHECK(p->dk_stride[0] == 128 * 200 && p->dk_stride[1] == 128 && p->dk_stride[2] == 64);
    CHECK(fabs((double)p->scale - 0.25) < 1e-9 && fabs((double)p->scale_log2 - 0.36067376) < 1e-6);
    CHECK(p->group == 4 && p->q_tiles == 2 && p->k_tiles == 7 && p->batch == 2);
}

/* Backward's work is 2.5 times forward's. */
static void test_work(void)
{
    fa2_problem forward = problem, causal = problem;
    forward.op = FA2_OP_FORWARD;
    causal.causal = 1;
    const fa2i_op *op = fa2i_op_of(&problem);
    CHECK_STR(op->name, fa2i_field_word(FA2I_FIELD_op, FA2_OP_BACKWARD));
    CHECK_EQ(op->abi, 1);
    CHECK(op->flop(&problem) == 10.0 * 2 * 8 * 100 * 200 * 64);
    CHECK(op->flop(&problem) == 2.5 * fa2i_problem_flop(&forward));
    CHECK(op->flop(&causal) == op->flop(&problem) / 2);
    CHECK(op->flop_unmasked(&causal) == op->flop(&problem));
    CHECK(op->bytes(&problem) == 4.0 * 2 * 64 * 2 * (8 * 100 + 2 * 200) + 4.0 * 2 * 8 * 100);
}

int main(void)
{
    test_refusals();
    test_unwanted();
    test_workspace();
    test_grid();
    test_splits();
    test_heads();
    test_packed();
    test_too_large();
    test_params();
    test_work();
    return check_done();
}
