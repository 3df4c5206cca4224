/*
 * The expected results of attention backward in fp64, and how far kernels may be from them.
 *
 * O and LSE are inputs like the others. The gradients are a function of these, Q, K, V and dO, and this function is
 * checked row by row:
 *
 *     p = exp(s - lse)    ds = p (dO v - dO O)    dQ = sum of ds k    dK = sum of ds q    dV = sum of p dO
 *
 * If scores are capped, ds is also multiplied by the derivative of the cap.
 *
 * The bound of each gradient is FlashAttention-2's rule: 2 x the largest error of a plain implementation, plus 1e-5.
 * The plain implementation rounds S, P, dP, dS and the gradients to the dtype. With a cap it rounds each step of the
 * cap and of its derivative. It also rounds dK and dV of each query head before it sums them. Few numbers may be
 * rounded well by luck. So the error counts as at least half a unit in the last place of the largest gradient, which is
 * what rounding may lose. dQ of a row that sees no key is exactly 0. dK and dV of a key that no row sees are exactly 0,
 * too.
 *
 * With fp32 nothing is rounded. The plain implementation sums all products in fp32, one after the other.
 * As in forward, 3 x the plain error and 2e-6 are allowed (reference.h).
 *
 * Kernels cap scores with tanh.approx, whose error may be 2^-11 of the tanh t. Then each p may be off by a factor exp(c
 * t / 2^11), where c is the cap, and each derivative 1 - t^2 by t^2 / 2^10. The resulting errors of a gradient's terms
 * are added to its bound. Their signs are unrelated, so the bound gets four times the root of the sum of their squares.
 * For up to 16 terms of equal size that is at least their sum.
 */
#include <math.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/problem.h"
#include "runtime/ops/call.h"
#include "tuner/judge/backward_reference.h"
#include "tuner/judge/features.h"
#include "tuner/judge/judge.h"
#include "tuner/judge/merge.h"
#include "tuner/judge/number.h"
#include "tuner/judge/reference.h"

void fa2i_backward_read_statistics(fa2i_backward_part *p, int32_t batch, int32_t head, int32_t row, const float *d_o,
                                   double *ret_lse, double *ret_delta)
{
    const fa2i_backward_work *w = p->work;
    const fa2i_host_tensor *o = &w->tensors[O];
    const int64_t at = fa2i_extent_at(&w->lse_extent, batch, head, row);
    const int columns = fa2i_head_dim_v(&w->c->problem);
    fa2i_host_row(o, w->c->problem.dtype, fa2i_host_row_at(o, batch, head, row), columns, p->spare);
    *ret_lse = (double)w->lse[(size_t)at % w->lse_period];
    *ret_delta = fa2i_dot(d_o, p->spare, columns);
}

fa2i_backward_weights fa2i_backward_weigh(const fa2i_backward_part *of, fa2i_row at, int32_t key, const float *q,
                                          const float *d_o, const float *k, const float *v, double lse, double delta)
{
    const fa2i_backward_work *w = of->work;
    const fa2_problem *problem = &of->sequence.problem;
    const double kept = fa2i_kept(problem, &w->features, at.batch, at.head, at.row, key);
    const fa2_dtype dtype = w->c->problem.dtype;
    const double s = w->scale * fa2i_dot(q, k, problem->head_dim);
    const double dp = kept * fa2i_dot(d_o, v, fa2i_head_dim_v(problem));
    const fa2i_factors *factors = &w->c->factors;
    const double capped = fa2i_score_modified(s, factors);
    const double term = fa2i_score_term(problem, &w->features, at.batch, at.head, at.row, key, capped);
    /* The LSE of a row that sees no key is -infinity. */
    const double p = isinf(lse) || isinf(term) ? 0 : exp(capped + term - lse);
    const double rounded_s =
        dtype == FA2_FP32 ? (double)(fa2i_plain_dot(q, k, problem->head_dim) * (float)w->scale) : s;
    float plain_slope, plain_s = fa2i_plain_score(dtype, rounded_s, factors, &plain_slope);
    if (term != 0)
        plain_s = fa2i_rounded(dtype, plain_s + fa2i_rounded(dtype, (float)term));
    const float plain_dp = dtype == FA2_FP32 ? (float)kept * fa2i_plain_dot(d_o, v, fa2i_head_dim_v(problem))
                                             : fa2i_rounded(dtype, (float)dp);
    const float plain_p = p == 0 ? 0 : fa2i_rounded(dtype, expf(plain_s - (float)lse));
    const float plain_capped_ds = fa2i_rounded(dtype, plain_p * (plain_dp - (float)delta));
    const float plain_ds = fa2i_rounded(dtype, plain_capped_ds * plain_slope);
    const double capped_ds = p * (dp - delta);
    const fa2i_slope at_s = fa2i_score_slope(s, factors);
    return (fa2i_backward_weights){.p = p * kept,
                                   .ds = capped_ds * at_s.slope * w->scale,
                                   .capped_ds = capped_ds,
                                   .plain_capped_ds = (double)plain_capped_ds,
                                   .off_capped_ds = fabs(capped_ds) * at_s.p_error,
                                   .plain_p = (double)fa2i_rounded(dtype, plain_p * (float)kept),
                                   .plain_ds = (double)plain_ds * w->scale,
                                   .off_p = p * kept * at_s.p_error,
                                   .off_ds = fabs(capped_ds * w->scale) *
                                             (at_s.slope * at_s.p_error + at_s.slope_error * (1 + at_s.p_error))};
}

static void add(double *sum, double factor, const float *row, int count)
{
    for (int i = 0; i < count; i++)
        sum[i] += factor * (double)row[i];
}

/* The same by the plain implementation, which sums fp32 elements in fp32. */
static void add_plain(fa2_dtype dtype, double *sum, double factor, const float *row, int count)
{
    if (dtype != FA2_FP32)
        add(sum, factor, row, count);
    else
        for (int i = 0; i < count; i++)
            sum[i] = (double)((float)sum[i] + (float)factor * row[i]);
}

/* Skips terms without an error. */
static void add_square(double *sum, double off, const float *row, int count)
{
    for (int i = 0; off > 0 && i < count; i++)
        sum[i] += off * off * (double)row[i] * (double)row[i];
}

void fa2i_backward_note(fa2i_backward_part *p, int gradient, int width, const double *exact, const double *plain,
                        const double *squares, bool is_rounded)
{
    const fa2_dtype dtype = p->work->c->problem.dtype;
    for (int d = 0; d < width; d++) {
        const double rounded = is_rounded ? (double)fa2i_rounded(dtype, (float)plain[d]) : plain[d];
        p->plain_error[gradient] = fmax(p->plain_error[gradient], fabs(rounded - exact[d]));
        p->largest[gradient] = fmax(p->largest[gradient], fabs(exact[d]));
        p->tanh_error[gradient] = fmax(p->tanh_error[gradient], 4 * sqrt(squares[d]));
    }
}

/* Records a complete row of a gradient. */
static void note_row(fa2i_backward_part *p, int gradient, const double *exact, const double *plain,
                     const double *squares)
{
    fa2i_backward_note(p, gradient, p->work->outputs[gradient].width, exact, plain, squares, true);
}

void fa2i_backward_read_rows(fa2i_backward_part *p, const int rows[2], int32_t row_head, int32_t row,
                             const int heads[2], int32_t head)
{
    const fa2i_backward_work *w = p->work;
    const fa2i_sequence *s = &p->sequence;
    const bool of_keys = heads[0] == K;
    for (int i = 0; i < 2; i++) {
        const fa2i_host_tensor *tensor = &w->tensors[rows[i]];
        const int columns = i == 0 ? s->problem.head_dim : fa2i_head_dim_v(&s->problem);
        fa2i_host_row(tensor, s->problem.dtype, fa2i_host_row_at(tensor, s->batch, row_head, row), columns, p->row[i]);
        fa2i_sequence_head(&w->tensors[heads[i]], s, head, of_keys ? s->first_k : s->first_q,
                           of_keys ? s->problem.seq_k : s->problem.seq_q, columns, p->head[i], &p->at[i]);
    }
}

/* Writes a row that is in no sequence: 0 (cleared), or NaN for a row between the bounds, which kernels do not write. */
static void put_unused(const fa2i_wanted *wanted, size_t index, bool cleared)
{
    for (int d = 0; d < wanted->width; d++)
        wanted->values[index * (size_t)wanted->width + (size_t)d] = cleared ? 0 : NAN;
    wanted->exact[index] = cleared;
}

static void query_row(fa2i_backward_part *p, size_t index)
{
    const fa2i_backward_work *w = p->work;
    const fa2i_wanted *wanted = &w->outputs[DQ - INPUTS];
    const fa2i_place *at = &wanted->places[index];
    p->sequence = fa2i_sequence_at(&w->c->problem, &w->said, at->batch, at->row, false);
    if (p->sequence.first_q < 0) {
        put_unused(wanted, index, fa2i_row_is_unused(&w->c->problem, &w->said, at->row, false));
        return;
    }
    const fa2_problem *problem = &p->sequence.problem;
    const fa2i_row own = {p->sequence.index, at->head, at->row - p->sequence.first_q};
    const int head_dim = problem->head_dim;
    const int32_t kv_head = at->head / (problem->heads_q / problem->heads_kv);
    const fa2i_keys keys = fa2i_keys_seen(problem, own.row);
    double *exact = wanted->values + index * (size_t)head_dim; /* zero so far */
    double lse = 0, delta = 0;
    wanted->exact[index] = keys.first == keys.end;
    memset(p->sums, 0, (size_t)head_dim * sizeof *p->sums);
    memset(p->squares, 0, (size_t)head_dim * sizeof *p->squares);
    fa2i_backward_read_rows(p, fa2i_of_query, at->head, at->row, fa2i_of_key, kv_head);
    fa2i_backward_read_statistics(p, at->batch, at->head, at->row, p->row[1], &lse, &delta);
    for (int32_t j = keys.first; j < keys.end; j++) {
        const float *k = p->head[0] + (int64_t)j * head_dim;
        const float *v = p->head[1] + (int64_t)j * fa2i_head_dim_v(problem);
        const fa2i_backward_weights x = fa2i_backward_weigh(p, own, j, p->row[0], p->row[1], k, v, lse, delta);
        add(exact, x.ds, k, head_dim);
        add_plain(problem->dtype, p->sums, x.plain_ds, k, head_dim);
        add_square(p->squares, x.off_ds, k, head_dim);
    }
    note_row(p, DQ - INPUTS, exact, p->sums, p->squares);
}

/* Reads LSE and delta of all rows of a head whose dO is in p->head[1], unless they are there. */
static void read_plane(fa2i_backward_part *p, int32_t head)
{
    const fa2i_sequence *s = &p->sequence;
    const fa2_problem *problem = &s->problem;
    const int64_t plane = (int64_t)s->index * problem->heads_q + head;
    if (p->stats_at == plane)
        return;
    p->stats_at = plane;
    for (int32_t i = 0; i < problem->seq_q; i++)
        fa2i_backward_read_statistics(p, s->batch, head, s->first_q + i,
                                      p->head[1] + (int64_t)i * fa2i_head_dim_v(problem), &p->lse[i], &p->delta[i]);
}

/* Adds the contributions of one head's queries to a row of dK and dV. The plain sums are rounded. Returns whether any
 * query sees the key. */
static bool add_queries(fa2i_backward_part *p, int32_t head, int32_t key, double *dk, double *dv)
{
    const fa2_problem *problem = &p->sequence.problem;
    const int head_dim = problem->head_dim, columns = fa2i_head_dim_v(problem);
    double *of_head = p->sums + 2 * (size_t)head_dim;
    bool seen = false;
    memset(of_head, 0, 2 * (size_t)head_dim * sizeof *of_head);
    for (int32_t i = 0; i < problem->seq_q; i++) {
        const float *q = p->head[0] + (int64_t)i * head_dim;
        const float *d_o = p->head[1] + (int64_t)i * columns;
        if (!fa2i_key_is_seen(problem, i, key))
            continue;
        const fa2i_backward_weights x = fa2i_backward_weigh(p, (fa2i_row){p->sequence.index, head, i}, key, q, d_o,
                                                            p->row[0], p->row[1], p->lse[i], p->delta[i]);
        seen = true;
        add(dk, x.ds, q, head_dim);
        add(dv, x.p, d_o, columns);
        add_plain(problem->dtype, of_head, x.plain_ds, q, head_dim);
        add_plain(problem->dtype, of_head + head_dim, x.plain_p, d_o, columns);
        add_square(p->squares, x.off_ds, q, head_dim);
        add_square(p->squares + head_dim, x.off_p, d_o, columns);
    }
    for (int d = 0; d < 2 * head_dim; d++)
        p->sums[d] += (double)fa2i_rounded(problem->dtype, (float)of_head[d]);
    return seen;
}

static void key_row(fa2i_backward_part *p, size_t index)
{
    const fa2i_backward_work *w = p->work;
    const fa2_problem *problem = &w->c->problem;
    const fa2i_wanted *dk = &w->outputs[DK - INPUTS], *dv = &w->outputs[DV - INPUTS];
    const fa2i_place *at = &dk->places[index]; /* dV has the same places */
    p->sequence = fa2i_sequence_at(problem, &w->said, at->batch, at->row, true);
    if (p->sequence.first_q < 0) {
        const bool cleared = fa2i_row_is_unused(problem, &w->said, at->row, true);
        put_unused(dk, index, cleared);
        put_unused(dv, index, cleared);
        return;
    }
    const int32_t group = problem->heads_q / problem->heads_kv;
    const size_t head_dim = (size_t)problem->head_dim;
    double *of_dk = dk->values + index * head_dim;
    double *of_dv = dv->values + index * (size_t)dv->width;
    bool seen = false;
    memset(p->sums, 0, 2 * head_dim * sizeof *p->sums);
    memset(p->squares, 0, 2 * head_dim * sizeof *p->squares);
    for (int32_t head = at->head * group; head < (at->head + 1) * group; head++) {
        fa2i_backward_read_rows(p, fa2i_of_key, at->head, at->row, fa2i_of_query, head);
        read_plane(p, head);
        seen |= add_queries(p, head, at->row - p->sequence.first_k, of_dk, of_dv);
    }
    dk->exact[index] = dv->exact[index] = !seen;
    note_row(p, DK - INPUTS, of_dk, p->sums, p->squares);
    note_row(p, DV - INPUTS, of_dv, p->sums + head_dim, p->squares + head_dim);
}

static void *run_part(void *argument)
{
    fa2i_backward_part *p = argument;
    const size_t queries = p->work->outputs[DQ - INPUTS].row_count;
    const size_t keys = p->work->outputs[DK - INPUTS].row_count;
    p->at[0] = p->at[1] = -1;
    for (size_t i = queries * p->index / p->count; i < queries * (p->index + 1) / p->count; i++)
        query_row(p, i);
    p->at[0] = p->at[1] = p->stats_at = -1;
    for (size_t i = keys * p->index / p->count; i < keys * (p->index + 1) / p->count; i++)
        key_row(p, i);
    p->at[0] = p->at[1] = -1;
    const size_t of_bias = p->work->dbias != NULL ? p->work->dbias->row_count : 0;
    for (size_t i = of_bias * p->index / p->count; i < of_bias * (p->index + 1) / p->count; i++)
        fa2i_backward_bias_row(p, i);
    return NULL;
}

static size_t longest(const fa2_problem *p)
{
    return (size_t)(p->seq_q > p->seq_k ? p->seq_q : p->seq_k);
}

static fa2_status part_init(fa2i_backward_part *p)
{
    fa2_status st = FA2_OK;
    const fa2_problem *problem = &p->work->c->problem;
    const size_t head_dim = (size_t)problem->head_dim, queries = (size_t)problem->seq_q;
    for (int i = 0; i < 2; i++) {
        FA2_TRY(FA2I_NEW(p->row[i], head_dim));
        FA2_TRY(FA2I_NEW(p->head[i], longest(problem) * head_dim));
    }
    FA2_TRY(FA2I_NEW(p->lse, queries));
    FA2_TRY(FA2I_NEW(p->delta, queries));
    FA2_TRY(FA2I_NEW(p->spare, head_dim));
    FA2_TRY(FA2I_NEW(p->sums, 4 * head_dim));
    FA2_TRY(FA2I_NEW(p->squares, 2 * head_dim));
    FA2_TRY(FA2I_NEW(p->scores, 2 * longest(problem)));
done:
    return st;
}

static void part_done(fa2i_backward_part *p)
{
    for (int i = 0; i < 2; i++) {
        fa2i_free(p->row[i]);
        fa2i_free(p->head[i]);
    }
    fa2i_free(p->lse);
    fa2i_free(p->delta);
    fa2i_free(p->spare);
    fa2i_free(p->sums);
    fa2i_free(p->squares);
    fa2i_free(p->scores);
}

/* Computes the bound of a gradient, as described at the top, from the errors that the parts found. */
static fa2i_bound bound_of(fa2_dtype dtype, const fa2i_backward_part *parts, size_t count, int gradient)
{
    double error = 0, largest = 0, tanh_error = 0;
    for (size_t i = 0; i < count; i++) {
        error = fmax(error, parts[i].plain_error[gradient]);
        largest = fmax(largest, parts[i].largest[gradient]);
        tanh_error = fmax(tanh_error, parts[i].tanh_error[gradient]);
    }
    if (largest > 0)
        error = fmax(error, ldexp(1, ilogb(largest) - fa2i_significant_bits(dtype)));
    return dtype == FA2_FP32 ? (fa2i_bound){.absolute = 3 * error + 2e-6}
                             : (fa2i_bound){.absolute = 2 * error + 1e-5 + tanh_error};
}

static fa2_status reserve_outputs(const fa2i_backward_work *w)
{
    fa2_status st = FA2_OK;
    for (int i = 0; st == FA2_OK && i < FA2I_GRADIENTS; i++)
        st = fa2i_wanted_reserve(&w->outputs[i]);
    return st == FA2_OK && w->dbias != NULL ? fa2i_wanted_reserve(w->dbias) : st;
}

fa2_status fa2i_backward_reference(const fa2i_case *c, const fa2i_inputs *inputs, int threads, fa2i_wanted *outputs)
{
    fa2_status st = FA2_OK;
    fa2i_backward_part parts[FA2I_PARTS_MAX] = {{0}};
    const size_t part_bytes = longest(&c->problem) * (size_t)c->problem.head_dim * 2 * sizeof(float);
    const size_t rows = outputs[0].row_count > outputs[1].row_count ? outputs[0].row_count : outputs[1].row_count;
    const size_t count = fa2i_count_parts(threads, rows, part_bytes);
    fa2i_backward_work w = {.c = c,
                            .lse_extent = fa2i_case_extent(c, LSE),
                            .lse = inputs->data[LSE],
                            .lse_period = inputs->period[LSE],
                            .scale = fa2i_softmax_scale(&c->problem, c->factors.softmax_scale),
                            .features = fa2i_case_features(c, inputs),
                            .said = fa2i_case_said(c, inputs),
                            .outputs = outputs};

    for (int i = 0; i < LSE; i++)
        w.tensors[i] = fa2i_case_host_tensor(c, inputs, i);
    if (fa2i_bias_has_gradient(c->problem.bias)) {
        w.dbias = &outputs[FA2I_GRADIENTS + fa2i_operand_is_asked(&c->problem, FA2I_OPERAND_dsinks)];
        w.dbias_extent = fa2i_case_extent(c, DBIAS);
    }
    FA2_TRY(reserve_outputs(&w));
    for (size_t i = 0; i < count; i++) {
        parts[i] = (fa2i_backward_part){.work = &w, .index = i, .count = count};
        FA2_TRY(part_init(&parts[i]));
    }
    fa2i_run_parts(run_part, parts, sizeof *parts, count);
    for (int i = 0; i < FA2I_GRADIENTS; i++) {
        outputs[i].bound = bound_of(c->problem.dtype, parts, count, i);
        if (c->problem.partial == FA2_PARTIAL_MERGE)
            fa2i_merge_gradient(c, inputs, &outputs[i]);
    }
    if (w.dbias != NULL)
        w.dbias->bound = bound_of(c->problem.dtype, parts, count, FA2I_GRADIENT_OF_BIAS);
    if (fa2i_operand_is_asked(&c->problem, FA2I_OPERAND_dsinks))
        FA2_TRY(fa2i_backward_sink_gradients(&parts[0], &outputs[FA2I_GRADIENTS]));
done:
    for (size_t i = 0; i < count; i++)
        part_done(&parts[i]);
    return st;
}
