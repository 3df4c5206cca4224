/*
 * The gradients of a bias and of each head's sink in fp64, and how far kernels may be from them (backward_reference.c).
 *
 * The gradient of a bias element is the sum of dS, before a cap's derivative, over all scores that share the element.
 * It is fp32, so the plain sum is not rounded.
 */
#include <math.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/judge/backward_reference.h"

/* Adds one query's contribution to a row of dbias. turned: the row belongs to one key, and the query adds to one
 * column. */
static bool add_to_bias(fa2i_backward_part *p, fa2i_row at, int32_t first_key, int32_t keys, bool turned, double *exact)
{
    const fa2i_backward_work *w = p->work;
    const fa2_problem *problem = &p->sequence.problem;
    const size_t width = (size_t)w->dbias->width;
    double lse = 0, delta = 0;
    bool seen = false;
    fa2i_backward_read_rows(p, fa2i_of_query, at.head, p->sequence.first_q + at.row, fa2i_of_key,
                            at.head / (problem->heads_q / problem->heads_kv));
    fa2i_backward_read_statistics(p, p->sequence.batch, at.head, p->sequence.first_q + at.row, p->row[1], &lse, &delta);
    for (int32_t j = first_key; j < first_key + keys && j < problem->seq_k; j++) {
        if (!fa2i_key_is_seen(problem, at.row, j))
            continue;
        const float *k = p->head[0] + (int64_t)j * problem->head_dim;
        const float *v = p->head[1] + (int64_t)j * fa2i_head_dim_v(problem);
        const fa2i_backward_weights x = fa2i_backward_weigh(p, at, j, p->row[0], p->row[1], k, v, lse, delta);
        const size_t column = turned ? (size_t)at.row : (size_t)j;
        seen = true;
        exact[column] += x.capped_ds;
        p->scores[column] += x.plain_capped_ds;
        p->scores[width + column] += x.off_capped_ds * x.off_capped_ds;
    }
    return seen;
}

/* Indexes first ... end - 1: one of `count` (none if it is out of range), or all. */
typedef struct range {
    int32_t first, end;
} range;

static range one_or_all(bool one, int32_t at, int32_t count)
{
    return one ? (range){at, at < count ? at + 1 : at} : (range){0, count};
}

/* A row of dbias belongs to one query, or to all queries that share it; turned: to one key. All batches and heads that
 * share it add to it. */
void fa2i_backward_bias_row(fa2i_backward_part *p, size_t index)
{
    const fa2i_backward_work *w = p->work;
    const fa2_problem *problem = &w->c->problem;
    const fa2i_wanted *wanted = w->dbias;
    const fa2i_place *at = &wanted->places[index];
    const bool turned = w->c->layout == FA2I_LAYOUT_BHSD;
    const bool one_query = !turned && fa2i_case_bias(w->c, DBIAS).query > 0;
    const range batches = one_or_all(w->dbias_extent.batch > 1, at->batch, problem->batch);
    const range heads = one_or_all(w->dbias_extent.heads > 1, at->head, problem->heads_q);
    double *exact = wanted->values + index * (size_t)wanted->width; /* zero so far */
    bool seen = false;
    memset(p->scores, 0, 2 * (size_t)wanted->width * sizeof *p->scores);
    for (int32_t b = batches.first; b < batches.end; b++) {
        p->sequence = fa2i_sequence_of(problem, &w->said, b);
        const range queries = one_or_all(one_query, at->row, p->sequence.problem.seq_q);
        for (int32_t h = heads.first; h < heads.end; h++)
            for (int32_t i = queries.first; i < queries.end; i++)
                seen |= add_to_bias(p, (fa2i_row){p->sequence.index, h, i}, turned ? at->row : 0,
                                    turned ? 1 : problem->seq_k, turned, exact);
    }
    wanted->exact[index] = !seen;
    fa2i_backward_note(p, FA2I_GRADIENT_OF_BIAS, wanted->width, exact, p->scores, p->scores + wanted->width, false);
}

/* ---- the sink of a head ---- */

/* Returns a head's gradient. Adds the magnitudes of its terms to *ret_size. p must have room for rows. */
static double sink_gradient(fa2i_backward_part *p, int32_t head, double *ret_size)
{
    const fa2i_backward_work *w = p->work;
    const fa2_problem *problem = &w->c->problem;
    const double sink = fa2i_sink_score(problem, &w->features, head);
    const fa2i_host_tensor *d_o = &w->tensors[DO];
    double sum = 0, lse = 0, delta = 0;
    for (int32_t b = 0; b < problem->batch; b++) {
        const fa2i_sequence s = fa2i_sequence_of(problem, &w->said, b);
        for (int32_t i = s.first_q; i < s.first_q + s.problem.seq_q; i++) {
            fa2i_host_row(d_o, problem->dtype, fa2i_host_row_at(d_o, s.batch, head, i), fa2i_head_dim_v(problem),
                          p->row[0]);
            fa2i_backward_read_statistics(p, s.batch, head, i, p->row[0], &lse, &delta);
            const double term = isinf(lse) || isinf(sink) ? 0 : exp(sink - lse) * delta;
            sum -= term;
            *ret_size += fabs(term);
        }
    }
    return sum;
}

/* The bound is for fp32 sums, whose terms have the error of the exponential of their LSE. */
fa2_status fa2i_backward_sink_gradients(fa2i_backward_part *p, fa2i_wanted *wanted)
{
    const int32_t heads = p->work->c->problem.heads_q;
    double largest = 0;
    wanted->values = fa2i_alloc_array(wanted->row_count * (size_t)heads, sizeof *wanted->values);
    wanted->exact = fa2i_alloc_array(wanted->row_count, sizeof *wanted->exact);
    if (wanted->values == NULL || wanted->exact == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for the gradients of %d heads", (int)heads);
    for (int32_t head = 0; head < heads; head++) {
        double size = 0;
        wanted->values[head] = sink_gradient(p, head, &size);
        largest = fmax(largest, size);
    }
    for (size_t row = 1; row < wanted->row_count; row++)
        memcpy(wanted->values + row * (size_t)heads, wanted->values, (size_t)heads * sizeof *wanted->values);
    wanted->bound = (fa2i_bound){.absolute = 1e-5 + 1e-4 * largest};
    return FA2_OK;
}
