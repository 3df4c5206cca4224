/*
 * A context with another generator: the test's own scripts, which are the real ones with another end.
 * - M.variant raises an error in its first calls. The call fails with that error, the kernel is not rejected, and the
 * next
 *   call gets it.
 * - M.source writes another text. A kernel that other scripts made by default is not used for it.
 */
#include "planner_fixture.h"
#include "scripts_fixture.h"

/* Makes the first `failures` look-ups of variants in each Lua state fail. */
static void write_failing(int failures)
{
    char more[256];
    snprintf(more, sizeof more,
             "local real, calls = M.variant, 0\n"
             "function M.variant(text)\n"
             "   calls = calls + 1\n"
             "   if calls <= %d then error('the scripts are torn') end\n"
             "   return real(text)\n"
             "end\n",
             failures);
    write_scripts(more);
}

static long compiled(fa2_problem problem)
{
    fa2_context *context = create();
    CHECK_EQ(explain(context, problem).rule, FA2_RULE_DEFAULT);
    fa2_context_destroy(context);
    return fake.compile_count;
}

/* A kernel that a call compiled and stored has that time's source. Other scripts compile their own, once. */
static void test_changed_source(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    begin();
    write_commented("one");
    CHECK_EQ(compiled(problem), 1);
    CHECK_EQ(compiled(problem), 1);
    write_commented("two");
    CHECK_EQ(compiled(problem), 2);
    CHECK_EQ(compiled(problem), 2);
    write_commented("one"); /* the first text again: its code still exists */
    CHECK_EQ(compiled(problem), 2);
    write_commented("three");
    remove_nvrtc(); /* another source's kernel is better than none */
    CHECK_EQ(compiled(problem), 2);
    unsetenv("FA2_NVRTC_LIBRARY");
    end(NULL);
}

/* After an error, the next of the model's choices is not silently used instead. */
static void test_choice_of_model(void)
{
    const fa2_problem problem = tuned_problem(1, 512);
    begin();
    write_failing(1);
    fa2_context *context = create();
    CHECK_EQ(fa2_prepare(context, &problem), FA2_E_GENERATOR);
    CHECK_CONTAINS(fa2_last_message(), "the scripts are torn");
    CHECK(strstr(fa2_last_message(), "variants fail") == NULL);
    CHECK_EQ(fake.compile_count, 0);
    CHECK_CONTAINS(explain(context, problem).reason, "first choice");
    end(context);
}

/* A winner without code stays the winner, even if the generator fails to answer about it. */
static void test_lost_winner(void)
{
    static const char text[] = "fwd_sm80 d=64 dtype=fp16 causal=1 br=64 bc=32 warps=4 kstages=1 "
                               "vstages=1 layout=swizzle q=smem fill=whole";
    const fa2_problem problem = tuned_problem(1, 512);
    begin();
    write_failing(1);
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = problem, .text = text});
    tuned_sql(&database, "DELETE FROM image");
    fa2_context *context = create();
    CHECK_EQ(fa2_prepare(context, &problem), FA2_E_GENERATOR);
    CHECK_CONTAINS(fa2_last_message(), "the scripts are torn");
    const fa2_explanation e = explain(context, problem);
    CHECK_EQ(e.rule, FA2_RULE_EXACT);
    CHECK_STR(e.variant, text);
    CHECK_CONTAINS(log_of.text, "compiled again");
    end(context);
}

/* A text that is no variant is refused as before. Scripts that do not know it have not failed. */
static void test_unknown_text(void)
{
    begin();
    write_failing(0);
    tuned_put(&database, &(tuned_winner){.id = 1, .problem = tuned_problem(1, 512)});
    tuned_sql(&database, "DELETE FROM image");
    fa2_context *context = create();
    const fa2_explanation e = explain(context, tuned_problem(1, 512));
    CHECK_EQ(e.rule, FA2_RULE_DEFAULT);
    CHECK(strstr(e.variant, "id=1") == NULL);
    end(context);
}

int main(void)
{
    scripts_begin();
    test_choice_of_model();
    test_lost_winner();
    test_unknown_text();
    test_changed_source();
    scripts_end();
    return check_done();
}
