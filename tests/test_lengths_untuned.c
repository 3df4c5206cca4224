/*
 * Many lengths with one context, untuned. Few of them ask the generator, and the memory for known problems is bounded.
 * Questions to the generator are counted by allocations: Lua makes thousands for each. A prepared problem makes one,
 * and sometimes one for its table.
 */
#include <limits.h>
#include "lengths_fixture.h"

/* Returns true for the first length of a step of keys: one after a multiple of 16, and from 512 on one after a
 * sixteenth of a power of two. A single key equals the number of queries. */
static bool begins_step(int length)
{
    int step = 16;
    while (length > 32 * step)
        step *= 2;
    return length <= 2 || (length - 1) % step == 0;
}

/* Returns true if the launch has the grid of its own problem. */
static bool has_right_grid(fa2i_generator *generator, fa2_context *context, const fa2_problem *problem,
                           const fake_launch *launch)
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

/* The kernel must be the model's first choice for the step's last length. */
static void check_kernel(fa2i_generator *generator, fa2_context *context, int32_t length, int32_t end)
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
    fa2_context *second = create(""); /* without earlier calls: the same choices */
    check_kernel(generator, second, 1025, 1088);
    fa2_context_destroy(second);
    fa2i_generator_destroy(generator);
    end(context);
}

/* ---- known problems ---- */

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

static void call_lengths(fa2_context *context, int first, int last)
{
    int wrong = 0;
    for (int length = first; length <= last; length++) {
        const fa2_problem problem = problem_of(length);
        wrong += forward(context, &problem, NULL) != FA2_OK;
    }
    CHECK_EQ(wrong, 0);
}

/* A problem that was prepared by any function, or called, can be captured until PLANS_KEPT others were. */
static void test_plans_are_kept(void)
{
    const fa2_problem called = problem_of(30001), prepared = problem_of(30002), sized = problem_of(30003),
                      explained = problem_of(30004), unknown = problem_of(60000);
    size_t bytes = 1, again = 2;

    begin();
    CUcontext own = fake_context_push(0);
    fa2_context *context = create("");
    CHECK_EQ(forward_captured(context, &called), FA2_E_CAPTURE);
    CHECK_CONTAINS(fa2_last_message(), "until 8192 others were prepared or called");
    CHECK_EQ(forward(context, &called, NULL), FA2_OK);
    CHECK_EQ(fa2_prepare(context, &prepared), FA2_OK);
    CHECK_EQ(fa2_workspace_size(context, &sized, &bytes), FA2_OK);
    CHECK_EQ(explain(context, &explained).rule, FA2_RULE_DEFAULT);
    call_lengths(context, 1, PLANS_KEPT - 4);
    fa2i_alloc_fail_at(LONG_MAX); /* only counts */
    CHECK_EQ(forward_captured(context, &called), FA2_OK);
    CHECK_EQ(forward_captured(context, &prepared), FA2_OK);
    CHECK_EQ(forward_captured(context, &sized), FA2_OK);
    CHECK_EQ(forward_captured(context, &explained), FA2_OK);
    CHECK_EQ(fa2_workspace_size(context, &sized, &again), FA2_OK);
    CHECK_EQ(again, bytes);
    CHECK_EQ(fa2i_alloc_fail_at(0), 0);
    CHECK_EQ(forward_captured(context, &unknown), FA2_E_CAPTURE);
    fa2_context_destroy(context);
    fake_context_pop(own);
    end(NULL);
}

/* A forgotten problem whose step is known can still be captured, without SQLite, driver or model. So can one whose
 * winner is loaded. */
static void test_recalled_while_capturing(void)
{
    const fa2_problem tuned = problem_of(256), forgotten = problem_of(1000), never = problem_of(1001),
                      unknown = problem_of(60000);
    begin();
    CUcontext own = fake_context_push(0);
    put(1, tuned);
    set_written_long_ago(database.path);
    fa2_context *context = create(database.path);
    CHECK_EQ(forward(context, &tuned, NULL), FA2_OK);
    CHECK_EQ(launched_id(), 1);
    CHECK_EQ(forward(context, &forgotten, NULL), FA2_OK);
    call_lengths(context, 20000, 20000 + PLANS_KEPT + PLANS_KEPT / 2);
    const fa2_explanation before = explain_length(context, 1002);
    statements = 0;
    CHECK_EQ(forward_captured(context, &tuned), FA2_OK);
    CHECK_EQ(forward_captured(context, &forgotten), FA2_OK);
    CHECK_EQ(forward_captured(context, &never), FA2_OK);
    CHECK_EQ(forward_captured(context, &unknown), FA2_E_CAPTURE);
    CHECK_EQ(statements, 0);
    CHECK_STR(explain_length(context, 1001).variant, before.variant);
    CHECK_EQ(explain(context, &tuned).rule, FA2_RULE_EXACT);
    fa2_context_destroy(context);
    fake_context_pop(own);
    end(NULL);
}

int main(void)
{
    CHECK_EQ(sqlite3_auto_extension((void (*)(void))watch), SQLITE_OK);
    test_untuned_lengths();
    test_plans_are_kept();
    test_recalled_while_capturing();
    return check_done();
}
