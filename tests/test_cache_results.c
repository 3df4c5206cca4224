/* The results that a tuning of a problem stores in the database, and the ids of many problems. */
#include "cache_fixture.h"

/* Measurements, a verification, the record of a kernel that was never compiled, and a winner: all or nothing. */
static void test_results(fa2i_cache *cache)
{
    const ids to = sample_ids(cache, 640);
    const fa2i_results_of of = {to.session, to.device, to.problem};
    fa2i_kernel measured = sample_kernel(30), unmade = sample_kernel(31);
    const fa2i_measurement row = {.settled = true, .n = 4, .min_us = 1, .q1_us = 2, .median_us = 3, .q3_us = 4};
    const fa2i_measurement none = {.settled = true, .detail = "left out"};
    const fa2i_verification wrong = {.outcome = FA2I_OUTCOME_WRONG, .max_error = 9, .detail = "wrong here"};
    const fa2i_result results[] = {{.kernel = measured.key, .verdict = &wrong, .measurement = row},
                                   {.kernel = unmade.key, .record = &unmade, .measurement = none}};
    fa2i_winner winner = {.kernel = sample_key(998), .measured = true, .median_us = 3}, got = {0};
    fa2i_measurement found = {0};
    fa2i_verification verdict = {0};
    fa2i_kernel kernel = {0};
    size_t noted = 99;

    unmade.image = (fa2i_blob){0};
    CHECK_EQ(fa2i_cache_put_kernel(cache, &measured), FA2_OK);
    CHECK_EQ(fa2i_cache_put_results(cache, &of, results, 2, &winner, &noted), FA2_E_NOT_FOUND);
    CHECK_EQ(noted, 99);
    CHECK_EQ(fa2i_cache_get_measurement(cache, to.device, to.problem, &measured.key, &found), FA2_E_NOT_FOUND);
    CHECK_EQ(fa2i_cache_get_verification(cache, to.device, &measured.key, &verdict), FA2_E_NOT_FOUND);
    CHECK_EQ(fa2i_cache_get_kernel(cache, &unmade.key, unmade.variant.recipe.abi, false, &kernel), FA2_E_NOT_FOUND);
    winner.kernel = measured.key;
    for (size_t i = 0; i < 2; i++) { /* the record is new only once */
        CHECK_EQ(fa2i_cache_put_results(cache, &of, results, 2, &winner, &noted), FA2_OK);
        CHECK_EQ(noted, 1 - i);
    }
    CHECK_EQ(fa2i_cache_get_winner(cache, to.device, to.problem, &got), FA2_OK);
    CHECK(memcmp(&got.kernel, &measured.key, sizeof got.kernel) == 0);
    CHECK_EQ(fa2i_cache_get_measurement(cache, to.device, to.problem, &measured.key, &found), FA2_OK);
    CHECK(found.settled && found.n == 4 && found.median_us == 3);
    CHECK_EQ(fa2i_cache_get_measurement(cache, to.device, to.problem, &unmade.key, &found), FA2_OK);
    CHECK_STR(found.detail, "left out");
    CHECK_EQ(fa2i_cache_get_verification(cache, to.device, &measured.key, &verdict), FA2_OK);
    CHECK_EQ(verdict.outcome, FA2I_OUTCOME_WRONG);
    CHECK_STR(verdict.detail, "wrong here");
    CHECK_EQ(fa2i_cache_get_kernel(cache, &unmade.key, unmade.variant.recipe.abi, false, &kernel), FA2_OK);
    fa2i_kernel_done(&kernel);
}

/* The ids of many problems equal the ids found one by one. */
static void test_problems(fa2i_cache *cache)
{
    const fa2_problem first = sample_problem(7001), second = sample_problem(7002);
    const fa2_problem *const list[] = {&second, &first, &second};
    int64_t many[3] = {0}, id = 0;
    CHECK_EQ(fa2i_cache_problem(cache, &first, &id), FA2_OK);
    CHECK_EQ(fa2i_cache_problems(cache, list, 3, many), FA2_OK);
    CHECK(many[1] == id && many[0] == many[2] && many[0] != id);
    CHECK_EQ(fa2i_cache_problem(cache, &second, &id), FA2_OK);
    CHECK(many[0] == id);
}

int main(void)
{
    fixture f;
    fixture_begin(&f);
    fa2i_cache *cache = fixture_open(f.path);
    test_results(cache);
    test_problems(cache);
    fa2i_cache_close(cache);
    fixture_end(&f);
    return check_done();
}
