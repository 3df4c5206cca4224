/* Rank correlations compared with values computed by hand; the random problems and the summary of a field report. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "runtime/base/problem.h"
#include "tuner/bench/field.h"

static double correlation(const double *x, const double *y, size_t count)
{
    double rho = NAN;
    CHECK_EQ(fa2i_rank_correlation(x, y, count, &rho), FA2_OK);
    return rho;
}

static void test_ranks(void)
{
    const double up[] = {1, 2, 3, 10}, also_up[] = {0.1, 5, 6, 6.5}, down[] = {4, 3, 2, 1};
    const double mixed[] = {2, 1, 4, 3}; /* 1 - 6 * 4 / (4 * 15) */
    const double tied[] = {1, 1, 2, 3}, flat[] = {7, 7, 7, 7};
    CHECK(correlation(up, also_up, 4) == 1);
    CHECK(correlation(up, down, 4) == -1);
    CHECK(fabs(correlation(up, mixed, 4) - 0.6) < 1e-12);
    /* Ranks 0.5 0.5 2 3 and 0 1 2 3: covariance 4.5, variances 4.5 and 5. */
    CHECK(fabs(correlation(tied, up, 4) - 4.5 / sqrt(4.5 * 5)) < 1e-12);
    CHECK(correlation(flat, up, 4) == 0);
}

static void test_problems(void)
{
    fa2_problem first[FA2I_FIELD_PROBLEMS], again[FA2I_FIELD_PROBLEMS];
    size_t count = 0, more = 0, decoding = 0;
    memset(first, 0, sizeof first);
    memset(again, 0, sizeof again);
    fa2i_field_problems(false, first, &count);
    fa2i_field_problems(false, again, &more);
    CHECK_EQ(count, FA2I_FIELD_PROBLEMS);
    CHECK(more == count && memcmp(first, again, sizeof first) == 0);
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(fa2i_problem_check(&first[i]), FA2_OK);
        decoding += first[i].seq_q == 1;
        for (size_t j = 0; j < i; j++)
            CHECK(memcmp(&first[i], &first[j], sizeof first[i]) != 0);
    }
    CHECK(decoding > 0 && decoding < count);
    fa2i_field_problems(true, first, &count);
    CHECK(count > 1 && count < 5);
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(fa2i_problem_check(&first[i]), FA2_OK);
}

static void test_summary(void)
{
    const fa2i_accuracy list[] = {
        {.rank_correlation = 0.9, .first_loss = 0.1, .regret = 0.02},
        {.rank_correlation = 0.5, .first_loss = 0, .regret = FA2I_ACCURACY_UNKNOWN},
        {.rank_correlation = 1.0, .first_loss = 0.2, .regret = 0},
    };
    fa2i_field_summary s;
    CHECK_EQ(fa2i_field_summarize(FA2_OP_FORWARD, list, 3, &s), FA2_OK);
    CHECK(s.problems == 3 && s.unknown == 1 && s.rank_correlation == 0.9);
    CHECK(fabs(s.first_loss_mean - 0.1) < 1e-12 && s.first_loss_worst == 0.2);
    CHECK(fabs(s.regret_mean - 0.01) < 1e-12 && s.regret_worst == 0.02);
    CHECK_EQ(fa2i_field_summarize(FA2_OP_FORWARD, list, 0, &s), FA2_OK);
    CHECK(s.problems == 0 && s.rank_correlation == 0);
}

/* The worst come first, at most five, and none without a loss. */
static void test_misses(void)
{
    const fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                                 .batch = 1,
                                 .heads_q = 1,
                                 .heads_kv = 1,
                                 .seq_q = 64,
                                 .seq_k = 64,
                                 .head_dim = 64};
    fa2i_accuracy forward[4] = {{.first_loss = 0.25}, {.first_loss = 0}, {.first_loss = 0.5}, {.first_loss = 0.01}};
    fa2i_accuracy backward[3] = {{.first_loss = 0.125}, {.first_loss = 1}, {.first_loss = 0.75}};
    fa2i_accuracy *const lists[] = {forward, backward};
    const size_t counts[] = {4, 3};
    char *text = NULL;
    size_t bytes = 0;
    for (int i = 0; i < 4; i++)
        forward[i].problem = problem;
    for (int i = 0; i < 3; i++) {
        backward[i].problem = problem;
        strcpy(backward[i].first, "bwd_sm80");
    }
    FILE *out = open_memstream(&text, &bytes);
    CHECK_EQ(fa2i_field_print_misses(lists, counts, 2, out), FA2_OK);
    fclose(out);
    const char *at = text;
    for (size_t i = 0; i < 5; i++) {
        static const char *const losses[] = {"+100.0 %", "+75.0 %", "+50.0 %", "+25.0 %", "+12.5 %"};
        const char *found = strstr(at, losses[i]);
        CHECK(found != NULL);
        at = found == NULL ? at : found;
    }
    CHECK(strstr(text, "+1.0 %") == NULL && strstr(text, "+0.0 %") == NULL);
    CHECK_CONTAINS(text, "D=64 dtype=fp16 causal=0\n    bwd_sm80");
    free(text);
    const size_t none[] = {0, 0};
    out = open_memstream(&text, &bytes);
    CHECK_EQ(fa2i_field_print_misses(lists, none, 2, out), FA2_OK);
    fclose(out);
    CHECK_STR(text, "");
    free(text);
}

int main(void)
{
    test_misses();
    test_ranks();
    test_problems();
    test_summary();
    return check_done();
}
