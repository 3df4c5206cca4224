/*
 * The table of the cost model's answers: each question has its own answer, the limit holds, and the least recently used
 * answer is dropped.
 */
#include "check.h"
#include "runtime/base/alloc.h"
#include "runtime/plan/answers.h"

static fa2_problem problem_of(int n)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .batch = 1,
                         .heads_q = 8,
                         .heads_kv = 8,
                         .seq_q = 1 + n,
                         .seq_k = 1 + n,
                         .head_dim = 64};
}

static fa2_status add(fa2i_answers *answers, int n, bool unmapped, uint64_t reading)
{
    fa2i_class_answer *answer = fa2i_alloc(sizeof *answer);
    CHECK(answer != NULL);
    answer->asked = problem_of(n);
    answer->unmapped = unmapped;
    answer->reading = reading;
    answer->tried = (size_t)n;
    answer->passed = fa2i_strdup("text");
    const fa2_status st = fa2i_answers_add(answers, answer);
    if (st != FA2_OK)
        fa2i_answer_free(answer);
    return st;
}

static bool has(fa2i_answers *answers, int n, bool unmapped, uint64_t reading)
{
    const fa2_problem problem = problem_of(n);
    const fa2i_class_answer *found = fa2i_answers_find(answers, &problem, unmapped, reading);
    CHECK(found == NULL || found->tried == (size_t)n);
    return found != NULL;
}

static void test_each_question(void)
{
    fa2i_answers answers = {0};
    CHECK(!has(&answers, 1, false, 0)); /* empty is fine */
    CHECK_EQ(add(&answers, 1, false, 0), FA2_OK);
    CHECK(has(&answers, 1, false, 0));
    CHECK(!has(&answers, 1, true, 0));
    CHECK(!has(&answers, 1, false, 1));
    CHECK(!has(&answers, 2, false, 0));
    CHECK_EQ(add(&answers, 1, true, 0), FA2_OK);
    CHECK_EQ(add(&answers, 1, false, 1), FA2_OK);
    CHECK(has(&answers, 1, false, 0) && has(&answers, 1, true, 0) && has(&answers, 1, false, 1));
    CHECK_EQ(answers.count, 3);
    fa2i_answers_done(&answers);
    fa2i_answers_done(&answers);
}

static void test_limit(void)
{
    fa2i_answers answers = {0};
    int kept = 0;
    for (int n = 0; n < FA2I_ANSWERS_KEPT; n++)
        CHECK_EQ(add(&answers, n, false, 0), FA2_OK);
    CHECK_EQ(answers.count, FA2I_ANSWERS_KEPT);
    CHECK(has(&answers, 0, false, 0)); /* used now, so 1 is the oldest */
    CHECK_EQ(add(&answers, FA2I_ANSWERS_KEPT, false, 0), FA2_OK);
    CHECK_EQ(answers.count, FA2I_ANSWERS_KEPT);
    CHECK(has(&answers, 0, false, 0));
    CHECK(!has(&answers, 1, false, 0));
    for (int n = 0; n < 10 * FA2I_ANSWERS_KEPT; n++)
        if (!has(&answers, n, false, 0))
            CHECK_EQ(add(&answers, n, false, 0), FA2_OK);
    for (int n = 0; n < 10 * FA2I_ANSWERS_KEPT; n++)
        kept += has(&answers, n, false, 0);
    CHECK_EQ(kept, FA2I_ANSWERS_KEPT);
    CHECK_EQ(answers.count, FA2I_ANSWERS_KEPT);
    fa2i_answers_done(&answers);
}

static void test_memory(void)
{
    fa2i_answers answers = {0};
    fa2i_class_answer *answer = fa2i_alloc(sizeof *answer);
    answer->asked = problem_of(0);
    fa2i_alloc_fail_at(1);
    CHECK_EQ(fa2i_answers_add(&answers, answer), FA2_E_MEMORY);
    fa2i_alloc_fail_at(0);
    CHECK_EQ(fa2i_answers_add(&answers, answer), FA2_OK);
    CHECK(has(&answers, 0, false, 0));
    fa2i_answers_done(&answers);
}

int main(void)
{
    test_each_question();
    test_limit();
    test_memory();
    return check_done();
}
