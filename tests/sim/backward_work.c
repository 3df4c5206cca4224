/*
 * The reference. It computes one query row after the other and adds to the gradients of its head.
 */
#include "tests/sim/backward_work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tuner/judge/attention.h"
#include "tuner/judge/features.h"
#include "tuner/judge/reference.h"

void *must_alloc(size_t count, size_t bytes)
{
    void *p = calloc(count > 0 ? count : 1, bytes);
    if (p == NULL) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return p;
}

static uint32_t random_bits(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static float random_number(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)(random_bits(state) & 0xffff) / 65536.0f - 0.5f;
    return sum * 1.7f;
}

double round_to(fa2_dtype dtype, double x)
{
    return fa2i_from_bits(dtype, fa2i_to_bits(dtype, (float)x));
}

size_t row_offset(const host_tensor *x, int b, int h, int i)
{
    return (size_t)(b * x->place.stride_batch + h * x->place.stride_head + i * x->place.stride_seq);
}

double *row_of(double *rows, const work *w, const host_tensor *x, int b, int h, int i)
{
    return rows + (((size_t)b * (size_t)x->heads + (size_t)h) * (size_t)x->seq + (size_t)i) * (size_t)w->t->d;
}

static void make_tensor(work *w, int which, uint64_t *random)
{
    const shape *s = &w->s;
    const bool is_key = which == K || which == V || which == DK || which == DV;
    const int d = w->t->d;
    host_tensor *x = &w->tensor[which];
    x->heads = is_key ? s->heads_kv : s->heads_q;
    x->seq = is_key ? s->seq_k : s->seq_q;
    const int gap = s->layout == 2 ? 8 * (which + 1) : 0;
    if (s->layout == 1) {
        x->place.stride_seq = d;
        x->place.stride_head = (int64_t)d * x->seq;
        x->place.stride_batch = x->place.stride_head * x->heads;
    } else {
        x->place.stride_head = d + gap;
        x->place.stride_seq = x->place.stride_head * x->heads + gap;
        x->place.stride_batch = x->place.stride_seq * x->seq + gap;
    }
    x->elems = row_offset(x, s->batch - 1, x->heads - 1, x->seq - 1) + (size_t)d;
    x->data = must_alloc(x->elems + 8, sizeof *x->data);
    memset(x->data, 0xff, x->elems * sizeof *x->data);
    const size_t values = (size_t)s->batch * (size_t)x->heads * (size_t)x->seq * (size_t)d;
    if (which >= INPUTS) {
        x->exact = must_alloc(values, sizeof *x->exact);
        x->plain = must_alloc(values, sizeof *x->plain);
    }
    for (int b = 0; which < INPUTS && which != O && b < s->batch; b++)
        for (int h = 0; h < x->heads; h++)
            for (int i = 0; i < x->seq; i++)
                for (int c = 0; c < d; c++)
                    x->data[row_offset(x, b, h, i) + (size_t)c] =
                        fa2i_to_bits(w->t->dtype, random_number(random) * (which == Q ? s->size : 1.0f));
}

static void read_row(const work *w, int which, int b, int h, int i, double *out)
{
    const host_tensor *x = &w->tensor[which];
    for (int c = 0; c < w->t->d; c++)
        out[c] = fa2i_from_bits(w->t->dtype, x->data[row_offset(x, b, h, i) + (size_t)c]);
}

static double dot(const double *a, const double *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(double *to, double factor, const double *from, int count)
{
    for (int i = 0; i < count; i++)
        to[i] += factor * from[i];
}

/* Computes a score, exact and plain, with the softcap if the variant has one. */
static void cap(const work *w, double score, double *ret_exact, double *ret_plain)
{
    const fa2i_factors factors = {.softcap = w->softcap};
    float plain_slope;
    *ret_exact = fa2i_score_modified(score, &factors);
    *ret_plain = (double)fa2i_plain_score(w->t->dtype, score, &factors, &plain_slope);
}

/* Returns the softcap's derivative at a capped score. plain: as the plain implementation computes it. */
static double slope_at(const work *w, double capped, bool plain)
{
    if (w->softcap == 0)
        return 1;
    const double t = capped / (double)w->softcap;
    return plain ? 1 - pow(round_to(w->t->dtype, t), 2) : 1 - t * t;
}

/* K and V of a head, and its rows of dK and dV. plain: the plain implementation's. */
typedef struct head {
    const double *k, *v;
    double *dk, *dv, *plain_dk, *plain_dv;
} head;

/* A query row: for each key its weight and the softcap's derivative, exact and plain. */
typedef struct query {
    int b, h, i;
    fa2i_keys keys;
    double *q, *d_o, *p, *plain, *slope, *plain_slope;
    double delta, plain_delta;
} query;

/* Computes weights that are not divided by their sum, which it returns, and the LSE. Both use the LSE that kernels get.
 * */
static double weigh(work *w, const head *of, query *row)
{
    const int d = w->t->d;
    const double scale = 1 / sqrt((double)d);
    double largest = -INFINITY, sum = 0;
    for (int j = row->keys.first; j < row->keys.end; j++) {
        cap(w, scale * dot(row->q, of->k + (size_t)j * (size_t)d, d), &row->p[j], &row->plain[j]);
        row->slope[j] = slope_at(w, row->p[j], false);
        row->plain_slope[j] = slope_at(w, row->plain[j], true);
        largest = fmax(largest, row->p[j]);
    }
    for (int j = row->keys.first; j < row->keys.end; j++) {
        sum += row->p[j] = exp(row->p[j] - largest);
        row->plain[j] = exp(row->plain[j] - largest);
    }
    const size_t at = ((size_t)row->b * (size_t)w->s.heads_q + (size_t)row->h) * (size_t)w->s.seq_q;
    w->lse[at + (size_t)row->i] = row->keys.first == row->keys.end ? -INFINITY : (float)(largest + log(sum));
    return sum;
}

/* Completes the weights, and computes delta and O. */
static void put_output(work *w, const head *of, query *row, double sum)
{
    const int d = w->t->d;
    host_tensor *tensor = &w->tensor[O];
    uint16_t *bits = tensor->data + row_offset(tensor, row->b, row->h, row->i);
    double *o = must_alloc((size_t)d, sizeof *o);
    for (int j = row->keys.first; j < row->keys.end; j++) {
        const double *v = of->v + (size_t)j * (size_t)d;
        const double dp = dot(row->d_o, v, d);
        row->p[j] /= sum;
        row->plain[j] = round_to(w->t->dtype, row->plain[j] / sum);
        row->delta += row->p[j] * dp;
        row->plain_delta += row->plain[j] * round_to(w->t->dtype, dp);
        add_scaled(o, row->p[j], v, d);
    }
    for (int c = 0; c < d; c++)
        bits[c] = fa2i_to_bits(w->t->dtype, (float)o[c]);
    free(o);
}

static void add_gradients(work *w, const head *of, const query *row)
{
    const int d = w->t->d;
    const fa2_dtype dtype = w->t->dtype;
    const double scale = 1 / sqrt((double)d);
    host_tensor *tensor = &w->tensor[DQ];
    double *dq = row_of(tensor->exact, w, tensor, row->b, row->h, row->i);
    double *plain_dq = row_of(tensor->plain, w, tensor, row->b, row->h, row->i);
    for (int j = row->keys.first; j < row->keys.end; j++) {
        const size_t at = (size_t)j * (size_t)d;
        const double dp = dot(row->d_o, of->v + at, d);
        const double ds = row->p[j] * (dp - row->delta) * row->slope[j] * scale;
        const double plain_dp = round_to(dtype, row->plain[j] * (round_to(dtype, dp) - row->plain_delta));
        const double plain_ds = round_to(dtype, plain_dp * row->plain_slope[j]) * scale;
        add_scaled(dq, ds, of->k + at, d);
        add_scaled(plain_dq, plain_ds, of->k + at, d);
        add_scaled(of->dk + at, ds, row->q, d);
        add_scaled(of->plain_dk + at, plain_ds, row->q, d);
        add_scaled(of->dv + at, row->p[j], row->d_o, d);
        add_scaled(of->plain_dv + at, row->plain[j], row->d_o, d);
    }
    for (int c = 0; c < d; c++)
        plain_dq[c] = round_to(dtype, plain_dq[c]);
}

/* Processes a query row: its O and LSE, and its part of its head's exact and plain gradients. */
static void query_row(work *w, int b, int h, int i, const head *of)
{
    const size_t d = (size_t)w->t->d, seq_k = (size_t)w->s.seq_k;
    query row = {.b = b, .h = h, .i = i, .keys = fa2i_keys_seen(&w->problem, i)};
    double *by_column = must_alloc(2 * d, sizeof *by_column);
    double *by_key = must_alloc(4 * seq_k, sizeof *by_key);
    row.q = by_column, row.d_o = by_column + d;
    row.p = by_key, row.plain = row.p + seq_k;
    row.slope = row.plain + seq_k, row.plain_slope = row.slope + seq_k;
    read_row(w, Q, b, h, i, row.q);
    read_row(w, DO, b, h, i, row.d_o);
    const double sum = weigh(w, of, &row);
    put_output(w, of, &row, sum);
    add_gradients(w, of, &row);
    free(by_column), free(by_key);
}

static void reference(work *w)
{
    const int d = w->t->d, group = w->s.heads_q / w->s.heads_kv;
    const size_t count = (size_t)w->s.seq_k * (size_t)d;
    double *k = must_alloc(count, sizeof *k), *v = must_alloc(count, sizeof *v);
    double *part[2] = {must_alloc(count, sizeof *k), must_alloc(count, sizeof *k)};
    for (int b = 0; b < w->s.batch; b++)
        for (int h = 0; h < w->s.heads_q; h++) {
            for (int j = 0; j < w->s.seq_k; j++) {
                read_row(w, K, b, h / group, j, k + (size_t)j * (size_t)d);
                read_row(w, V, b, h / group, j, v + (size_t)j * (size_t)d);
            }
            memset(part[0], 0, count * sizeof *k);
            memset(part[1], 0, count * sizeof *k);
            const head of = {.k = k,
                             .v = v,
                             .dk = row_of(w->tensor[DK].exact, w, &w->tensor[DK], b, h / group, 0),
                             .dv = row_of(w->tensor[DV].exact, w, &w->tensor[DV], b, h / group, 0),
                             .plain_dk = part[0],
                             .plain_dv = part[1]};
            for (int i = 0; i < w->s.seq_q; i++)
                query_row(w, b, h, i, &of);
            for (int g = 0; g < 2; g++) {
                double *sum = row_of(w->tensor[DK + g].plain, w, &w->tensor[DK + g], b, h / group, 0);
                for (size_t i = 0; i < count; i++)
                    sum[i] = round_to(w->t->dtype, sum[i] + round_to(w->t->dtype, part[g][i]));
            }
        }
    free(k), free(v), free(part[0]), free(part[1]);
}

void make_work(work *w, const tuning *t, const shape *s, uint64_t seed)
{
    *w = (work){.t = t,
                .s = *s,
                .problem = {.op = FA2_OP_BACKWARD,
                            .dtype = t->dtype,
                            .batch = s->batch,
                            .heads_q = s->heads_q,
                            .heads_kv = s->heads_kv,
                            .seq_q = s->seq_q,
                            .seq_k = s->seq_k,
                            .head_dim = t->d,
                            .causal = t->causal,
                            .softcap = t->softcap,
                            .deterministic = t->deterministic,
                            .window = t->window,
                            .window_left = t->window ? s->left : 0,
                            .window_right = t->window ? s->right : 0},
                .softcap = t->softcap ? s->size > 1 ? 30.0f : 1.5f : 0.0f};
    for (int i = 0; i < TENSORS; i++)
        make_tensor(w, i, &seed);
    w->lse = must_alloc((size_t)s->batch * (size_t)s->heads_q * (size_t)s->seq_q, sizeof *w->lse);
    reference(w);
}

void free_work(work *w)
{
    for (int i = 0; i < TENSORS; i++)
        free(w->tensor[i].data), free(w->tensor[i].exact), free(w->tensor[i].plain);
    free(w->lse);
}
