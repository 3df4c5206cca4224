/*
 * The arguments of a merge: each mistake is named; and the parameter block and the grid of correct ones.
 */
#include "check.h"
#include "runtime/base/problem.h"
#include "runtime/ops/op.h"

enum { B = 2, H = 3, S = 50, N = 4, D = 64, PART = B * H * S * D, ROWS = B * H * S };

static const fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                                    .op = FA2_OP_MERGE,
                                    .batch = B,
                                    .heads_q = H,
                                    .heads_kv = H,
                                    .seq_q = S,
                                    .seq_k = N,
                                    .head_dim = D};

static fa2_merge_args good_args(void)
{
    const fa2_tensor rows = {(void *)0x1000000, S * H * D, H * D, D};
    fa2_merge_args args = {.struct_bytes = sizeof args,
                           .parts = rows,
                           .parts_stride = PART,
                           .parts_lse = (const float *)0x3000000,
                           .parts_lse_stride = ROWS,
                           .o = rows,
                           .lse = (float *)0x5000000};
    args.o.data = (void *)0x4000000;
    return args;
}

static fa2_status check_args(const fa2_problem *p, const fa2_merge_args *args)
{
    const fa2i_grid grid = {0};
    return fa2i_op_of(p)->check_args(p, args, &grid);
}

static void check_bad(const fa2_merge_args *args, const char *said)
{
    CHECK_EQ(check_args(&problem, args), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), said);
}

static void test_mistakes(void)
{
    fa2_merge_args args = good_args();
    CHECK_EQ(check_args(&problem, &args), FA2_OK);
#define WITH(member, value, said)                                                                                      \
    args = good_args();                                                                                                \
    args.member = value;                                                                                               \
    check_bad(&args, said)
    WITH(parts.data, NULL, "parts.data is NULL");
    WITH(parts.stride_seq, 66, "parts.stride_seq is 66; it must be a multiple of 4 elements");
    WITH(parts_lse, NULL, "parts_lse is NULL");
    WITH(parts_lse, (const float *)0x3000002, "it must be a multiple of 4");
    WITH(parts_stride, PART + 2, "with 4 partial results it must be a multiple of 4 from 0 to");
    WITH(parts_stride, -8, "parts_stride is -8");
    WITH(parts_lse_stride, -1, "parts_lse_stride is -1; with 4 partial results it must be a multiple of 1 from 0 to");
    WITH(parts_stride, INT64_MAX - 7, "parts_stride is 9223372036854775800");
    WITH(o.data, NULL, "o.data is NULL");
    WITH(o.stride_head, 0, "o");
    /* The last partial result, and what lies between two. */
    WITH(o.data, (void *)(0x1000000 + (uintptr_t)(N - 1) * PART * 4), "o shares memory with parts");
    WITH(lse, (float *)(0x3000000 + ROWS * 4), "lse shares memory with parts_lse");
    WITH(lse, (float *)0x4000000, "lse shares memory with o");
    WITH(workspace, (void *)0x6000080, "multiple of 256 bytes");
#undef WITH
}

/* With one partial result no distance counts. */
static void test_one(void)
{
    fa2_problem one = problem;
    fa2_merge_args args = good_args();
    one.seq_k = 1;
    args.parts_stride = -3;
    args.parts_lse_stride = -3;
    args.lse = NULL;
    CHECK_EQ(check_args(&one, &args), FA2_OK);
}

static void test_problems(void)
{
    static const struct {
        int field;
        int32_t value;
        const char *said;
    } bad[] = {{FA2I_FIELD_heads_kv, 1, "heads_kv is 1; where op is merge it must be heads_q (3)"},
               {FA2I_FIELD_partial, 2, "partial is 2; where op is merge it must be 0, or 1"},
               {FA2I_FIELD_causal, 1, "causal is 1; the operation merge has no causal"},
               {FA2I_FIELD_head_dim_v, 8, "the operation merge has no head_dim_v"},
               {FA2I_FIELD_seq_k, 0, "seq_k is 0"}};
    CHECK_EQ(fa2i_problem_check(&problem), FA2_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fa2_problem p = problem;
        fa2i_field_set(&p, bad[i].field, bad[i].value);
        CHECK(fa2i_problem_check(&p) != FA2_OK);
        CHECK_CONTAINS(fa2_last_message(), bad[i].said);
    }
    fa2_problem many = problem;
    many.seq_k = 17;
    CHECK_EQ(fa2i_problem_rounded(&many).seq_k, 18); /* two of them do not become a tile of keys */
    CHECK_EQ(fa2i_problem_rounded(&problem).seq_k, N);
}

static void test_launch(void)
{
    const fa2_merge_args args = good_args();
    fa2i_recipe recipe;
    fa2i_grid grid;
    fa2i_params params;
    CHECK_EQ(fa2i_recipe_parse("op=merge abi=1 rows=16 keys=1; merge_sm80 role=main threads=128 smem=0 blocks=rows/16",
                               &recipe),
             FA2_OK);
    CHECK_EQ(fa2i_op_of(&problem)->grid(&(fa2i_card){.sm_count = 8}, &recipe, &problem, &grid), FA2_OK);
    CHECK_EQ(grid.blocks[0], (ROWS + 15) / 16);
    CHECK_EQ(grid.workspace_bytes, 0);
    fa2i_op_of(&problem)->fill(&grid, &problem, &args, &params);
    CHECK_EQ(params.merge.count, N);
    CHECK_EQ(params.merge.part_step, PART);
    CHECK_EQ(params.merge.part_stride[2], D);
    CHECK_EQ(fa2i_op_of(&problem)->bytes(&problem), 1.0 * ROWS * (4 * (D + 1) * N + 4 + 2 * D));
    CHECK_EQ(fa2i_problem_flop(&problem), 2.0 * PART * N);
}

int main(void)
{
    test_mistakes();
    test_one();
    test_problems();
    test_launch();
    return check_done();
}
