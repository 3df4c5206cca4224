/*
 * Many lengths with one context, untuned: few of them ask the generator, and what is remembered is bounded.
 * Questions to the generator are counted by allocations: Lua makes thousands for each, a plan makes one, its table
 * another now and then.
 */
#include "lengths_fixture.h"

/* The first length of a step of keys: behind a multiple of 16, and from 512 on sixteen to each doubling. A single key
 * is as many as there are queries. */
static bool begins_step(int length)
{
    int step = 16;
    while (length > 32 * step)
        step *= 2;
    return length <= 2 || (length - 1) % step == 0;
}

/* The grid of a launch is that of its very problem. */
static bool has_right_grid(fa2i_generator *generator, fa2_context *context,
                           const fa2_problem *problem, const fake_launch *launch)
{
    const fa2i_card card = tuned_card(0);
    const fa2_explanation e = explain(context, problem);
    fa2i_variant variant = {.text = ""};
    fa2i_grid grid = {.splits = 0};
    CHECK_EQ(fa2i_generator_variant(generator, e.variant, &variant), FA2_OK);
    CHECK_EQ(fa2i_op_of(problem)->grid(&card, &variant.recipe, problem, &grid), FA2_OK);
    return launch->blocks == grid.blocks[0] && launch->params.splits == grid.splits &&
           launch->params.seq_k == problem->seq_k;
}

/* The kernel is the model's first choice for the end of the step. */
static void check_kernel(fa2i_generator *generator, fa2_context *context, int32_t length,
                         int32_t end)
{
    const fa2i_card card = tuned_card(0);
    const fa2_problem problem = problem_of(length), asked = problem_of(end);
    fa2i_variant *variants = NULL;
    size_t count = 0;
    CHECK_EQ(fa2i_generator_candidates(generator, &asked, &card, &variants, &count), FA2_OK);
    const fa2_explanation e = explain(context, &problem);
    CHECK_STR(e.variant, variants[0].text);
    CHECK_EQ(e.rule, FA2_RULE_DEFAULT);
    CHECK_EQ(e.tuned_problem.seq_k, end);
    fa2i_free(variants);
}

static void test_untuned_lengths(void)
{
    fa2i_generator *generator = NULL;
    int wrong = 0, asked = 0, expected = 0;

    begin();
    CHECK_EQ(fa2i_generator_create(&generator), FA2_OK);
    fa2_context *context = create("");
    for (int length = 1; length <= LENGTHS; length++) {
        const fa2_problem problem = problem_of(length);
        const long first = fake.launch_count < FAKE_LAUNCHES ? fake.launch_count : 0;
        fa2i_alloc_fail_at(0);
        wrong += forward(context, &problem, NULL) != FA2_OK;
        asked += fa2i_alloc_fail_at(0) > PLAN_ALLOCATIONS;
        expected += begins_step(length);
        if (first > 0 && length % 61 == 0)
            wrong += !has_right_grid(generator, context, &problem, &fake.launches[first]);
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(expected, 81);
    CHECK_EQ(asked, expected);
    check_kernel(generator, context, 1000, 1024);
    check_kernel(generator, context, 1025, 1088);
    check_kernel(generator, context, 15, 16);
    fa2_context *second = create(""); /* without a history: the same */
    check_kernel(generator, second, 1025, 1088);
    fa2_context_destroy(second);
    fa2i_generator_destroy(generator);
    end(context);
}

/* ---- what is remembered ---- */

static fa2_status forward_captured(fa2_context *context, const fa2_problem *problem)
{
    const fa2i_cuda_table *cuda = NULL;
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CHECK_EQ(fa2i_cuda_get(&cuda), FA2_OK);
    CHECK_EQ(cuda->stream_create(&stream, 0), CUDA_SUCCESS);
    CHECK_EQ(cuda->stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    const fa2_status st = forward(context, problem, stream);
    CHECK_EQ(cuda->stream_end_capture(stream, &graph), CUDA_SUCCESS);
    CHECK_EQ(cuda->graph_destroy(graph), CUDA_SUCCESS);
    CHECK_EQ(cuda->stream_destroy(stream), CUDA_SUCCESS);
    return st;
}

static void test_plans_are_bounded(void)
{
    const fa2_problem last = problem_of(PLANS_KEPT), sized = problem_of(PLANS_KEPT + 1),
                      explained = problem_of(PLANS_KEPT + 2), beyond = problem_of(PLANS_KEPT + 3);
    size_t bytes = 1;
    int wrong = 0;

    begin();
    CUcontext own = fake_context_push(0);
    put(1, problem_of(256));
    set_written_long_ago(database.path);
    fa2_context *context = create(database.path);
    for (int length = 1; length <= PLANS_KEPT; length++) {
        const fa2_problem problem = problem_of(length);
        wrong += forward(context, &problem, NULL) != FA2_OK;
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(forward_captured(context, &last), FA2_OK);

    CHECK_EQ(forward(context, &beyond, NULL), FA2_OK); /* works, and is not remembered */
    CHECK_EQ(forward_captured(context, &beyond), FA2_E_CAPTURE);
    CHECK_CONTAINS(fa2_last_message(), "only the first 16384");
    CHECK_EQ(fa2_prepare(context, &beyond), FA2_OK); /* always remembers, as do the other two */
    CHECK_EQ(forward_captured(context, &beyond), FA2_OK);
    CHECK_EQ(fa2_workspace_size(context, &sized, &bytes), FA2_OK);
    CHECK_EQ(bytes, 0);
    CHECK_EQ(forward_captured(context, &sized), FA2_OK);
    CHECK_EQ(explain(context, &explained).rule, FA2_RULE_DEFAULT);
    CHECK_EQ(forward_captured(context, &explained), FA2_OK);
    fa2_context_destroy(context);
    fake_context_pop(own);
    end(NULL);
}

int main(void)
{
    CHECK_EQ(sqlite3_auto_extension((void (*)(void))watch), SQLITE_OK);
    test_untuned_lengths();
    test_plans_are_bounded();
    return check_done();
}
