/*
 * Cases, expectations, verdicts.
 *
 * The sizes of the cases are chosen against the tiles in use (16 to 256 rows and columns):
 * multiples and no multiples of them, less than the smallest, one row, one column, Sq != Sk both
 * ways, which when causal means a shifted diagonal and rows that see nothing.
 */
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "tuner/judge/verify.h"

static const struct plan {
    const char *name;
    int32_t batch, heads_q, heads_kv, seq_q, seq_k;
    fa2i_layout layout;
    int32_t want_lse;
    float q_magnitude;
} plans[] = {
    {"whole tiles, no LSE", 1, 2, 2, 256, 256, FA2I_LAYOUT_BSHD, 0, 1},
    {"S no multiple of a tile", 2, 2, 2, 197, 197, FA2I_LAYOUT_BHSD, 1, 1},
    {"S less than a tile", 2, 3, 3, 5, 5, FA2I_LAYOUT_GAPPED, 1, 1},
    {"Sq < Sk", 1, 2, 1, 67, 301, FA2I_LAYOUT_BSHD, 1, 1},
    {"Sq > Sk", 1, 2, 2, 301, 67, FA2I_LAYOUT_GAPPED, 1, 1},
    {"grouped heads", 2, 6, 2, 130, 130, FA2I_LAYOUT_BHSD, 1, 1},
    /* Scores up to about 100: exp would overflow without the maximum taken off. */
    {"large logits", 1, 2, 2, 160, 160, FA2I_LAYOUT_BSHD, 1, 24},
    {"one query", 2, 2, 1, 1, 257, FA2I_LAYOUT_BSHD, 1, 1},
    {"one key", 1, 2, 2, 129, 1, FA2I_LAYOUT_BSHD, 1, 1},
};

_Static_assert(sizeof plans / sizeof *plans <= FA2I_VERIFY_CASES_MAX, "room for every case");

size_t fa2i_verify_cases(const fa2_problem *problem, fa2i_verify_case cases[FA2I_VERIFY_CASES_MAX])
{
    size_t count = sizeof plans / sizeof *plans;
    for (size_t i = 0; i < count; i++) {
        const struct plan *plan = &plans[i];
        fa2i_case c = {.problem = *problem,
                       .layout = plan->layout,
                       .want_lse = plan->want_lse,
                       .q_magnitude = plan->q_magnitude,
                       .seed = 1000 + i};
        c.problem.batch = plan->batch;
        c.problem.heads_q = plan->heads_q;
        c.problem.heads_kv = plan->heads_kv;
        c.problem.seq_q = plan->seq_q;
        c.problem.seq_k = plan->seq_k;
        cases[i] = (fa2i_verify_case){.name = plan->name, .c = c};
    }
    return count;
}

static fa2i_host_tensor host_tensor(const fa2i_case *c, fa2i_operand operand, const uint16_t *block)
{
    fa2i_extent extent = fa2i_case_extent(c, operand);
    return (fa2i_host_tensor){.data = block,
                              .stride_batch = extent.stride_batch,
                              .stride_seq = extent.stride_seq,
                              .stride_head = extent.stride_head,
                              .period_elems = FA2I_CASE_PERIOD};
}

static size_t count_output_bytes(const fa2i_expected *e)
{
    size_t lse_bytes = e->c.want_lse ? e->row_count * sizeof(float) : 0;
    size_t elems = e->all ? (size_t)fa2i_case_extent(&e->c, FA2I_OPERAND_O).elems
                          : e->row_count * (size_t)e->c.problem.head_dim;
    return elems * sizeof(uint16_t) + lse_bytes;
}

/* The reference for e->c and e->rows. */
static fa2_status compute(fa2i_expected *e, int threads)
{
    fa2_status st = FA2_OK;
    uint16_t *blocks = fa2i_alloc_array(3 * (size_t)FA2I_CASE_PERIOD, sizeof *blocks);
    if (blocks == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for test data"));
    for (size_t i = 0; i < 3; i++)
        fa2i_case_fill(&e->c, (fa2i_operand)i, blocks + i * FA2I_CASE_PERIOD);
    fa2i_reference_request request = {
        .problem = e->c.problem,
        .q = host_tensor(&e->c, FA2I_OPERAND_Q, blocks),
        .k = host_tensor(&e->c, FA2I_OPERAND_K, blocks + FA2I_CASE_PERIOD),
        .v = host_tensor(&e->c, FA2I_OPERAND_V, blocks + 2 * FA2I_CASE_PERIOD),
        .rows = e->rows,
        .row_count = e->row_count,
        .threads = threads};
    FA2_TRY(fa2i_reference_compute(&request, &e->reference));
    e->output_bytes = count_output_bytes(e);
done:
    fa2i_free(blocks);
    return st;
}

static fa2_status finish(fa2i_expected *e, int threads, fa2i_expected *ret_expected)
{
    fa2_status st = compute(e, threads);
    if (st == FA2_OK)
        *ret_expected = *e;
    else
        fa2i_expected_done(e);
    return st;
}

static fa2_status alloc_rows(fa2i_expected *e, size_t count)
{
    e->rows = fa2i_alloc_array(count, sizeof *e->rows);
    e->row_count = count;
    return e->rows != NULL ? FA2_OK : fa2i_fail(FA2_E_MEMORY, "no memory for %zu rows", count);
}

fa2_status fa2i_expected_all(const fa2i_case *c, int threads, fa2i_expected *ret_expected)
{
    const fa2_problem *p = &c->problem;
    fa2i_expected e = {.c = *c, .all = true};
    fa2_status st = alloc_rows(&e, (size_t)p->batch * (size_t)p->heads_q * (size_t)p->seq_q);
    if (st != FA2_OK)
        return st;
    size_t next = 0;
    for (int32_t b = 0; b < p->batch; b++)
        for (int32_t h = 0; h < p->heads_q; h++)
            for (int32_t row = 0; row < p->seq_q; row++)
                e.rows[next++] = (fa2i_row){.batch = b, .head = h, .row = row};
    return finish(&e, threads, ret_expected);
}

fa2_status fa2i_expected_sampled(const fa2i_case *c, uint64_t seed, int threads,
                                 fa2i_expected *ret_expected)
{
    enum { HEADS = 4, ROWS_EACH = FA2I_VERIFY_ROWS / HEADS };
    const fa2_problem *p = &c->problem;
    fa2i_expected e = {.c = *c};
    fa2_status st = alloc_rows(&e, FA2I_VERIFY_ROWS);
    if (st != FA2_OK)
        return st;
    uint64_t state = seed;
    for (size_t i = 0; i < HEADS; i++) {
        int32_t b = (int32_t)(fa2i_random(&state) % (uint64_t)p->batch);
        int32_t h = (int32_t)(fa2i_random(&state) % (uint64_t)p->heads_q);
        for (size_t j = 0; j < ROWS_EACH; j++) {
            int32_t row = (int32_t)(fa2i_random(&state) % (uint64_t)p->seq_q);
            e.rows[i * ROWS_EACH + j] = (fa2i_row){.batch = b, .head = h, .row = row};
        }
    }
    e.rows[0].row = 0;
    /* The last row of the last head of the last batch: the far end of every tensor. */
    e.rows[FA2I_VERIFY_ROWS - 1] =
        (fa2i_row){.batch = p->batch - 1, .head = p->heads_q - 1, .row = p->seq_q - 1};
    return finish(&e, threads, ret_expected);
}

void fa2i_expected_done(fa2i_expected *expected)
{
    fa2i_free(expected->rows);
    fa2i_reference_done(&expected->reference);
    *expected = (fa2i_expected){0};
}

/* Take the rows out of O as it lies on the device. */
static void pack_rows(const fa2i_expected *e, const uint16_t *o, uint16_t *packed)
{
    fa2i_extent extent = fa2i_case_extent(&e->c, FA2I_OPERAND_O);
    size_t head_dim = (size_t)e->c.problem.head_dim;
    for (size_t i = 0; i < e->row_count; i++) {
        int64_t at = e->rows[i].batch * extent.stride_batch + e->rows[i].row * extent.stride_seq +
                     e->rows[i].head * extent.stride_head;
        memcpy(packed + i * head_dim, o + at, head_dim * sizeof *o);
    }
}

/* Elements between rows that are no longer poison. The rows of all three layouts lie head_dim or
 * head_dim
 * + 8 apart. */
static size_t count_gap_writes(const fa2i_expected *e, const uint16_t *o)
{
    fa2i_extent extent = fa2i_case_extent(&e->c, FA2I_OPERAND_O);
    int64_t head_dim = e->c.problem.head_dim;
    int64_t pitch = head_dim + (e->c.layout == FA2I_LAYOUT_GAPPED ? 8 : 0);
    size_t writes = 0;
    for (int64_t i = 0; i < extent.elems; i++)
        writes += i % pitch >= head_dim && o[i] != (FA2I_POISON & 0xffffu);
    return writes;
}

static void describe(const fa2i_expected *e, const char *name, const fa2i_comparison *comparison,
                     fa2i_verification *verdict)
{
    fa2i_row row = e->rows[comparison->worst_row];
    verdict->max_error = comparison->error;
    verdict->outcome = comparison->error <= 1 ? FA2I_OUTCOME_OK : FA2I_OUTCOME_WRONG;
    snprintf(verdict->detail, sizeof verdict->detail,
             "%s: %s of batch %d head %d row %d is %.6g, not %.6g: error %.3g x the bound", name,
             comparison->worst_is_lse ? "LSE" : "O", row.batch, row.head, row.row,
             comparison->worst_value, comparison->worst_expected, comparison->error);
}

fa2_status fa2i_expected_judge(const fa2i_expected *expected, const char *name, const void *output,
                               uint32_t overwritten, fa2i_verification *ret_verdict)
{
    const fa2i_expected *e = expected;
    size_t lse_bytes = e->c.want_lse ? e->row_count * sizeof(float) : 0;
    const uint16_t *o = output;
    const void *lse = (const unsigned char *)output + e->output_bytes - lse_bytes;
    fa2i_verification verdict = {.outcome = FA2I_OUTCOME_WRONG, .max_error = FA2I_ERROR_NOT_FINITE};
    size_t gap_writes = e->all ? count_gap_writes(e, o) : 0;
    uint16_t *packed =
        fa2i_alloc_array(e->row_count * (size_t)e->c.problem.head_dim, sizeof *packed);
    float *lse_copy = fa2i_alloc(lse_bytes); /* output is aligned for bytes only */

    if (packed == NULL || lse_copy == NULL) {
        fa2i_free(packed);
        fa2i_free(lse_copy);
        return fa2i_fail(FA2_E_MEMORY, "no memory to compare %zu rows", e->row_count);
    }
    if (overwritten > 0 || gap_writes > 0) {
        snprintf(verdict.detail, sizeof verdict.detail,
                 "%s: wrote outside of O and LSE: %u words around them, %zu elements between rows",
                 name, overwritten, gap_writes);
    } else {
        fa2i_comparison comparison;
        memcpy(lse_copy, lse, lse_bytes);
        if (e->all)
            pack_rows(e, o, packed);
        else
            memcpy(packed, o, e->output_bytes - lse_bytes);
        fa2i_reference_compare(&e->reference, e->c.problem.dtype, packed,
                               e->c.want_lse ? lse_copy : NULL, &comparison);
        describe(e, name, &comparison, &verdict);
    }
    *ret_verdict = verdict;
    fa2i_free(packed);
    fa2i_free(lse_copy);
    return FA2_OK;
}
