/*
 * Cases and verdicts without a GPU: outputs are made from the reference itself and then spoilt.
 */
#include <math.h>
#include <stdlib.h>
#include "check.h"
#include "tuner/judge/verify.h"

static const fa2_problem problem = {.dtype = FA2_BF16,
                                    .batch = 1,
                                    .heads_q = 1,
                                    .heads_kv = 1,
                                    .seq_q = 64,
                                    .seq_k = 64,
                                    .head_dim = 24,
                                    .causal = 1};

/* O and LSE as a perfect kernel would leave them: rounded numbers in the case's layout, poison
 * around. */
static void make_output(const fa2i_expected *e, unsigned char *output)
{
    fa2i_extent extent = fa2i_case_extent(&e->c, FA2I_OPERAND_O);
    size_t head_dim = (size_t)e->c.problem.head_dim;
    uint16_t *o = (uint16_t *)(void *)output;
    memset(output, 0xff, e->output_bytes);
    for (size_t i = 0; i < e->row_count; i++) {
        fa2i_row row = e->rows[i];
        int64_t at = row.batch * extent.stride_batch + row.row * extent.stride_seq +
                     row.head * extent.stride_head;
        if (!e->all)
            at = (int64_t)(i * head_dim);
        for (size_t d = 0; d < head_dim; d++)
            o[at + (int64_t)d] =
                fa2i_to_bits(e->c.problem.dtype, (float)e->reference.o[i * head_dim + d]);
    }
    for (size_t i = 0; e->c.want_lse && i < e->row_count; i++) {
        float lse = (float)e->reference.lse[i];
        memcpy(output + e->output_bytes - (e->row_count - i) * sizeof lse, &lse, sizeof lse);
    }
}

static fa2i_verification judge(const fa2i_expected *e, const void *output, uint32_t overwritten)
{
    fa2i_verification verdict = {0};
    CHECK_EQ(fa2i_expected_judge(e, "the case", output, overwritten, &verdict), FA2_OK);
    return verdict;
}

static void spoil(const fa2i_expected *e, unsigned char *output)
{
    fa2i_verification verdict = judge(e, output, 0);
    CHECK_EQ(verdict.outcome, FA2I_OUTCOME_OK);
    CHECK(verdict.max_error > 0 && verdict.max_error < 1);

    verdict = judge(e, output, 3);
    CHECK_EQ(verdict.outcome, FA2I_OUTCOME_WRONG);
    CHECK_CONTAINS(verdict.detail, "3 words around");

    /* The last element of O's last row was not written. */
    size_t lse_bytes = e->c.want_lse ? e->row_count * sizeof(float) : 0;
    size_t gap = e->all && e->c.layout == FA2I_LAYOUT_GAPPED ? 8 : 0;
    uint16_t *o = (uint16_t *)(void *)output;
    size_t last = (e->output_bytes - lse_bytes) / sizeof *o - gap - 1;
    uint16_t held = o[last];
    o[last] = 0xffff;
    verdict = judge(e, output, 0);
    CHECK_EQ(verdict.outcome, FA2I_OUTCOME_WRONG);
    CHECK(verdict.max_error == FA2I_ERROR_NOT_FINITE);
    CHECK_CONTAINS(verdict.detail, "the case: O of batch");
    o[last] = held;

    if (gap > 0) {
        o[last + 1] = 0;
        verdict = judge(e, output, 0);
        CHECK_EQ(verdict.outcome, FA2I_OUTCOME_WRONG);
        CHECK_CONTAINS(verdict.detail, "1 elements between rows");
        o[last + 1] = 0xffff;
    }
    if (lse_bytes > 0) {
        memset(output + e->output_bytes - sizeof(float), 0xff, sizeof(float));
        verdict = judge(e, output, 0);
        CHECK_EQ(verdict.outcome, FA2I_OUTCOME_WRONG);
        CHECK_CONTAINS(verdict.detail, "LSE of batch");
    }
}

static void test_case(const fa2i_verify_case *c)
{
    fa2i_expected e = {0};
    CHECK_EQ(fa2i_problem_check(&c->c.problem), FA2_OK);
    CHECK_EQ(fa2i_expected_all(&c->c, 2, &e), FA2_OK);
    CHECK_EQ(e.row_count, (size_t)c->c.problem.batch * (size_t)c->c.problem.heads_q *
                              (size_t)c->c.problem.seq_q);
    unsigned char *output = malloc(e.output_bytes);
    make_output(&e, output);
    spoil(&e, output);
    free(output);
    fa2i_expected_done(&e);
}

/* The promises of DESIGN.md: what the cases cover. */
static void test_coverage(const fa2i_verify_case *cases, size_t count)
{
    bool longer_q = false, longer_k = false, tail = false, tiny = false, grouped = false;
    bool large = false, no_lse = false, layouts[3] = {false};
    for (size_t i = 0; i < count; i++) {
        const fa2_problem *p = &cases[i].c.problem;
        longer_q |= p->seq_q > p->seq_k && p->seq_k > 16;
        longer_k |= p->seq_q < p->seq_k && p->seq_q > 16;
        tail |= p->seq_q % 16 != 0 && p->seq_k % 16 != 0 && p->seq_k > 128;
        tiny |= p->seq_q < 16 && p->seq_k < 16;
        grouped |= p->heads_q > p->heads_kv && p->heads_kv > 1;
        large |= cases[i].c.q_magnitude > 10;
        no_lse |= !cases[i].c.want_lse;
        layouts[cases[i].c.layout] = true;
        CHECK_EQ(p->head_dim, problem.head_dim);
        CHECK_EQ(p->causal, problem.causal);
    }
    CHECK(longer_q && longer_k && tail && tiny && grouped && large && no_lse);
    CHECK(layouts[0] && layouts[1] && layouts[2]);
}

/* Rows of a problem too large to compute as a whole. */
static void test_sampled(void)
{
    fa2i_case c = {.problem = problem, .q_magnitude = 1, .seed = 5};
    c.problem.batch = 16;
    c.problem.heads_q = 32;
    c.problem.seq_q = c.problem.seq_k = 4096;
    fa2i_expected e = {0}, again = {0};
    CHECK_EQ(fa2i_expected_sampled(&c, 1, 2, &e), FA2_OK);
    CHECK_EQ(fa2i_expected_sampled(&c, 1, 1, &again), FA2_OK);
    CHECK_EQ(e.row_count, FA2I_VERIFY_ROWS);
    CHECK_EQ(memcmp(e.rows, again.rows, e.row_count * sizeof *e.rows), 0);
    CHECK_EQ(memcmp(e.reference.o, again.reference.o, e.row_count * 24 * sizeof(double)), 0);
    CHECK_EQ(e.rows[0].row, 0);
    CHECK_EQ(e.rows[FA2I_VERIFY_ROWS - 1].batch, 15);
    CHECK_EQ(e.rows[FA2I_VERIFY_ROWS - 1].row, 4095);
    CHECK_EQ(e.output_bytes, FA2I_VERIFY_ROWS * 24 * sizeof(uint16_t));
    unsigned char *output = malloc(e.output_bytes);
    make_output(&e, output);
    spoil(&e, output);
    free(output);
    fa2i_expected_done(&e);
    fa2i_expected_done(&again);
}

/* Test data are nearly normal, reproducible and different from tensor to tensor. */
static void test_data(void)
{
    static uint16_t q[FA2I_CASE_PERIOD], k[FA2I_CASE_PERIOD];
    fa2i_case c = {.problem = problem, .q_magnitude = 3, .seed = 5};
    double sum = 0, squares = 0;
    c.problem.seq_q = c.problem.seq_k = 100000;
    CHECK_EQ(fa2i_case_fill(&c, FA2I_OPERAND_Q, q), FA2I_CASE_PERIOD);
    CHECK_EQ(fa2i_case_fill(&c, FA2I_OPERAND_K, k), FA2I_CASE_PERIOD);
    CHECK(memcmp(q, k, sizeof q) != 0);
    for (int i = 0; i < FA2I_CASE_PERIOD; i++) {
        double value = fa2i_from_bits(FA2_BF16, q[i]);
        sum += value;
        squares += value * value;
    }
    CHECK(fabs(sum / FA2I_CASE_PERIOD) < 0.05);
    CHECK(fabs(sqrt(squares / FA2I_CASE_PERIOD) - 3) < 0.05);
    c.problem.seq_q = 2;
    CHECK_EQ(fa2i_case_fill(&c, FA2I_OPERAND_Q, k), 2 * 24);
    CHECK_EQ(memcmp(q, k, 2 * 24 * sizeof *q), 0);
}

int main(void)
{
    fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX];
    size_t count = fa2i_verify_cases(&problem, cases);
    CHECK(count > 0 && count <= FA2I_VERIFY_CASES_MAX);
    test_coverage(cases, count);
    for (size_t i = 0; i < count; i++)
        test_case(&cases[i]);
    test_sampled();
    test_data();
    return check_done();
}
