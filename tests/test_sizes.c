/*
 * Sizes at and beyond the limits of a launch. All functions refuse the same problems, before they compute anything. For
 * accepted problems, every kernel has a grid, and every estimate is a positive number.
 */
#include <math.h>
#include "planner_fixture.h"
#include "runtime/base/alloc.h"
#include "runtime/lua/generator.h"
#include "runtime/ops/op.h"
#include "tuner/input/shapes.h"

enum { CARDS = 2, KINDS = 9, RECIPES_MAX = 512, ROUNDS = 6000, ASKED_EACH = 15 };

static const int archs[CARDS] = {75, 90};
static fa2i_generator *generator;
static fa2i_card cards[CARDS];

/* The initialisation that all problems share. */
#define SIZED .struct_bytes = sizeof(fa2_problem)

static const fa2_problem kinds[KINDS] = {
    {SIZED, .head_dim = 64},
    {SIZED, .head_dim = 128, .causal = 1},
    {SIZED, .head_dim = 64, .window = FA2_WINDOW_SLIDING},
    {SIZED, .head_dim = 64, .varlen = 1},
    {SIZED, .head_dim = 64, .paged = 1, .seqused = 1},
    {SIZED, .head_dim = 64, .bias = FA2_BIAS_FP16},
    {SIZED, .op = FA2_OP_BACKWARD, .head_dim = 64},
    {SIZED, .op = FA2_OP_BACKWARD, .head_dim = 64, .varlen = 1},
    {SIZED, .op = FA2_OP_BACKWARD, .head_dim = 64, .bias = FA2_BIAS_FP16_GRADIENT},
};

/* The recipes of each kind's candidates on each card, for long and for short queries. */
static fa2i_recipe recipes[KINDS][CARDS][RECIPES_MAX];
static size_t recipe_counts[KINDS][CARDS];

static void gather(int kind, int card, int32_t seq_q)
{
    fa2_problem problem = kinds[kind];
    fa2i_variant *variants = NULL;
    size_t count = 0;
    problem.batch = 1;
    problem.heads_q = 32;
    problem.heads_kv = 8;
    problem.seq_q = seq_q;
    problem.seq_k = 4096;
    problem.page = problem.paged ? 16 : 0;
    CHECK_EQ(fa2i_generator_candidates(generator, &problem, &cards[card], &variants, &count), FA2_OK);
    for (size_t i = 0; i < count && recipe_counts[kind][card] < RECIPES_MAX; i++)
        recipes[kind][card][recipe_counts[kind][card]++] = variants[i].recipe;
    fa2i_free(variants);
}

/* ---- accepted ---- */

static void check_grids(const fa2_problem *problem, int kind)
{
    const fa2i_op *op = fa2i_op_of(problem);
    for (int card = 0; card < CARDS; card++) {
        for (size_t i = 0; i < recipe_counts[kind][card]; i++) {
            const fa2i_recipe *recipe = &recipes[kind][card][i];
            fa2i_grid grid = {0};
            CHECK_EQ(op->grid(&cards[card], recipe, problem, &grid), FA2_OK);
            CHECK(grid.blocks[fa2i_recipe_main(recipe) - recipe->steps] > 0);
            CHECK(grid.workspace_bytes < (size_t)1 << 60);
        }
    }
    CHECK(isfinite(op->flop(problem)) && op->flop(problem) >= 0);
    CHECK(isfinite(op->bytes(problem)) && op->bytes(problem) > 0);
    CHECK(op->unmapped_bytes(problem) < (size_t)1 << 60);
}

static void check_estimates(const fa2_problem *problem, const fa2i_card *card)
{
    fa2i_option *options = NULL;
    size_t count = 0;
    CHECK_EQ(fa2i_generator_rank(generator, problem, card, &options, &count), FA2_OK);
    CHECK(count > 0);
    for (size_t i = 0; i < count; i++)
        CHECK(isfinite(options[i].us) && options[i].us > 0);
    fa2i_free(options);
}

static void check_calls(fa2_context *context, const fa2_problem *problem)
{
    fa2_explanation e = {.struct_bytes = sizeof e};
    size_t bytes = 0;
    CHECK_EQ(fa2_workspace_size(context, problem, &bytes), FA2_OK);
    CHECK(bytes < (size_t)1 << 60);
    CHECK_EQ(fa2_explain(context, problem, &e), FA2_OK);
    CHECK(isfinite(e.estimate_us) && e.estimate_us > 0);
}

/* ---- refused ---- */

/* All functions that take a problem refuse it with the same message. For texts it has keys in place of names. */
static void check_refusal(fa2_context *context, const fa2_problem *problem, fa2_status st)
{
    fa2_explanation e = {.struct_bytes = sizeof e};
    fa2i_option *options = NULL;
    size_t bytes = 77, count = 0;
    char why[512];
    snprintf(why, sizeof why, "%s", fa2_last_message());
    CHECK(st == FA2_E_INVALID || st == FA2_E_UNSUPPORTED);
    CHECK_EQ(fa2_workspace_size(context, problem, &bytes), st);
    CHECK_STR(fa2_last_message(), why);
    CHECK_EQ(bytes, 77);
    CHECK_EQ(fa2_explain(context, problem, &e), st);
    CHECK_STR(fa2_last_message(), why);
    CHECK_EQ(fa2i_generator_rank(generator, problem, &cards[0], &options, &count), st);
    CHECK_STR(fa2_last_message(), why);
}

static void check_text(const fa2_problem *problem, fa2_status st)
{
    fa2i_shapes shapes = {0};
    CHECK_EQ(fa2i_shapes_add_text(&shapes, fa2i_problem_shape(problem).text), st);
    CHECK(st != FA2_OK || memcmp(&shapes.items[0], problem, sizeof *problem) == 0);
    fa2i_shapes_done(&shapes);
}

/* ---- sizes ---- */

static unsigned state = 34; /* of the random numbers; a fixed seed */

static unsigned draw(unsigned below)
{
    state = state * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)(state >> 8) * below >> 24);
}

/* Returns 0, 1, the maximum, or a power of two or its neighbour. */
static int32_t extreme(int field)
{
    const int32_t most = fa2i_fields[field].most;
    const int64_t power = (int64_t)1 << draw(32);
    const int64_t picks[] = {0, 1, 1, most, most, power - 1, power, power, power + 1};
    const int64_t pick = picks[draw(sizeof picks / sizeof *picks)];
    return pick < INT32_MAX ? (int32_t)pick : INT32_MAX;
}

/* Usually changes one or two sizes only, because otherwise all problems would be refused. */
static fa2_problem draw_problem(int kind)
{
    static const int fields[] = {
        FA2I_FIELD_batch,       FA2I_FIELD_heads_q,      FA2I_FIELD_heads_kv, FA2I_FIELD_seq_q,   FA2I_FIELD_seq_k,
        FA2I_FIELD_window_left, FA2I_FIELD_window_right, FA2I_FIELD_total_q,  FA2I_FIELD_total_k, FA2I_FIELD_page};
    fa2_problem problem = kinds[kind];
    problem.batch = problem.heads_q = problem.heads_kv = problem.seq_q = problem.seq_k = 1;
    problem.page = problem.paged ? 16 : 0;
    for (unsigned i = 0, count = 1 + draw(4); i < count; i++) {
        const int field = fields[draw(sizeof fields / sizeof *fields)];
        const int needs = fa2i_fields[field].needs;
        if (needs < 0 || fa2i_field_get(&problem, needs) != 0)
            fa2i_field_set(&problem, field, extreme(field));
    }
    return problem;
}

static void test_extremes(fa2_context *context)
{
    int asked[KINDS] = {0}, refused[KINDS] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        const int kind = (int)draw(KINDS);
        const fa2_problem problem = draw_problem(kind);
        const fa2_status st = fa2i_problem_check(&problem);
        if (st != FA2_OK) {
            check_refusal(context, &problem, st);
            refused[kind]++;
        } else {
            check_grids(&problem, kind);
            if (asked[kind]++ < ASKED_EACH) {
                check_estimates(&problem, &cards[asked[kind] % CARDS]);
                check_calls(context, &problem);
            }
        }
        check_text(&problem, st);
    }
    for (int kind = 0; kind < KINDS; kind++)
        CHECK(asked[kind] > ASKED_EACH && refused[kind] > 100);
}

/* ---- the exact limits ---- */

static void check_limit(fa2_context *context, int kind, fa2_problem problem, int field, const char *why)
{
    CHECK_EQ(fa2i_problem_check(&problem), FA2_OK);
    check_grids(&problem, kind);
    for (int card = 0; card < CARDS; card++)
        check_estimates(&problem, &cards[card]);
    check_calls(context, &problem);
    fa2i_field_set(&problem, field, fa2i_field_get(&problem, field) + 1);
    CHECK_EQ(fa2i_problem_check(&problem), FA2_E_INVALID);
    CHECK_CONTAINS(fa2_last_message(), why);
    check_refusal(context, &problem, fa2i_problem_check(&problem));
}

static fa2_problem sized(int kind, int32_t batch, int32_t heads, int32_t seq_q, int32_t seq_k)
{
    fa2_problem problem = kinds[kind];
    problem.batch = batch;
    problem.heads_q = problem.heads_kv = heads;
    problem.seq_q = seq_q;
    problem.seq_k = seq_k;
    return problem;
}

static void test_limits(fa2_context *context)
{
    check_limit(context, 0, sized(0, (1 << 29) - 1, 1, 1, 1 << 29), FA2I_FIELD_batch,
                "batch times heads_q times seq_q, rounded up to a multiple of 16, is 8589934592; a launch takes at "
                "most 8589934591 rows");
    check_limit(context, 1, sized(1, 15, 1, 1 << 29, 1 << 29), FA2I_FIELD_batch, "batch times heads_q times seq_q");
    check_limit(context, 6, sized(6, (1 << 26) - 1, 1, 1, 1), FA2I_FIELD_batch,
                "batch times heads_q times seq_q, rounded up to a multiple of 128, is 8589934592;");
    check_limit(context, 6, sized(6, 15, 1, 128, 1 << 29), FA2I_FIELD_batch, "batch times heads_kv times seq_k");
    check_limit(context, 8, sized(8, 15, 1, 1 << 29, 1), FA2I_FIELD_batch, "batch times heads_q times seq_q");
    fa2_problem packed = sized(3, (1 << 29) - (1 << 25) - 1, 1, 1, 1);
    packed.total_q = packed.total_k = 1 << 29;
    check_limit(context, 3, packed, FA2I_FIELD_batch,
                "heads_q times the sum of total_q and 16 times batch is 8589934592; a launch takes at most");
    packed.op = FA2_OP_BACKWARD;
    packed.batch = (1 << 26) - (1 << 22) - 1;
    check_limit(context, 7, packed, FA2I_FIELD_batch, "heads_q times the sum of total_q and 128 times batch is");
    packed.batch = INT32_MAX; /* backward's blocks would exceed 32 bits */
    CHECK_EQ(fa2i_problem_check(&packed), FA2_E_INVALID);
    check_refusal(context, &packed, FA2_E_INVALID);
}

int main(void)
{
    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    for (int card = 0; card < CARDS; card++) {
        CHECK_EQ(fa2i_generator_card(generator, archs[card], &cards[card]), FA2_OK);
        for (int kind = 0; kind < KINDS; kind++) {
            gather(kind, card, 4096);
            gather(kind, card, 1);
        }
    }
    begin();
    fa2_context *context = create();
    test_limits(context);
    test_extremes(context);
    end(context);
    fa2i_generator_destroy(generator);
    return check_done();
}
