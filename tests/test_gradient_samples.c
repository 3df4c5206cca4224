/*
 * The judge of backward: sampled rows equal the same rows of the whole; and the cases of a verification.
 */
#include "check.h"
#include "judge_fixture.h"
#include "runtime/base/problem.h"
#include "tuner/judge/verify.h"

/* Sampled rows equal those of the whole, even for a tuned problem with arbitrary O and LSE. */
static void test_samples(void)
{
    const fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                                 .op = FA2_OP_BACKWARD,
                                 .batch = 2,
                                 .heads_q = 4,
                                 .heads_kv = 2,
                                 .seq_q = 50,
                                 .seq_k = 70,
                                 .head_dim = 16,
                                 .causal = 1};
    const fa2i_case c = fa2i_case_of(&problem, 5);
    fa2i_expected all, some;
    CHECK_EQ(fa2i_expected_all(&c, 2, &all), FA2_OK);
    CHECK_EQ(fa2i_expected_sampled(&c, 9, 1, &some), FA2_OK);
    CHECK_EQ(some.output_count, 3);
    for (int gradient = 0; gradient < 3; gradient++) {
        const fa2i_wanted *of = &all.outputs[gradient], *wanted = &some.outputs[gradient];
        const fa2i_extent extent = fa2i_case_extent(&c, first_gradient() + gradient);
        for (size_t i = 0; i < wanted->row_count; i++) {
            const fa2i_place *at = &wanted->places[i];
            const size_t row = (size_t)((at->batch * extent.heads + at->head) * extent.seq + at->row);
            const size_t bytes = (size_t)wanted->width * sizeof(double);
            CHECK(memcmp(wanted->values + i * (size_t)wanted->width, of->values + row * (size_t)wanted->width, bytes) ==
                  0);
        }
        CHECK(wanted->bound.absolute <= of->bound.absolute);
    }
    fa2i_expected_done(&all);
    fa2i_expected_done(&some);
}

/* Every case is a problem that can be launched. */
static void test_cases(void)
{
    const fa2_problem class = {.struct_bytes = sizeof(fa2_problem), .op = FA2_OP_BACKWARD, .head_dim = 64, .causal = 1};
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    const size_t count = fa2i_judge_of(FA2_OP_BACKWARD)->cases(&class, 100, cases);
    CHECK(count > 5);
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(fa2i_problem_check(&cases[i].c.problem), FA2_OK);
}

int main(void)
{
    test_samples();
    test_cases();
    return check_done();
}
