/*
 * The reference: one query row after the other, which adds to the gradients of its head.
 */
#include "tests/sim/backward_work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tuner/judge/attention.h"
#include "tuner/judge/reference.h"

void must(fa2_status status, const char *what)
{
    if (status == FA2_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, fa2_last_message());
    exit(1);
}

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
    return rows + (((size_t)b * (size_t)x->heads + (size_t)h) * (size_t)x->seq + (size_t)i) *
                      (size_t)w->t->d;
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
                    x->data[row_offset(x, b, h, i) + (size_t)c] = fa2i_to_bits(
                        w->t->dtype, random_number(random) * (which == Q ? s->size : 1.0f));
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

/* A score, exact and plain, capped where the variant does. */
static void cap(const work *w, double score, double *ret_exact, double *ret_plain)
{
    float plain_tanh;
    *ret_exact = fa2i_score_capped(score, (double)w->softcap);
    *ret_plain = (double)fa2i_plain_score(w->t->dtype, score, w->softcap, &plain_tanh);
}

/* The derivative of the cap at a score that is capped; plain: as the plain implementation has it. */
static double slope_at(const work *w, double capped, bool plain)
{
    if (w->softcap == 0)
        return 1;
    const double t = capped / (double)w->softcap;
    return plain ? 1 - pow(round_to(w->t->dtype, t), 2) : 1 - t * t;
}

/* One query row: its O and LSE, its part of the exact and the plain gradients of its head. */
static void query_row(work *w, int b, int h, int i, const double *k, const double *v, double *dk,
                      double *dv, double *plain_dk, double *plain_dv)
{
    const int d = w->t->d, seq_k = w->s.seq_k;
    const double scale = 1 / sqrt((double)d);
    const fa2i_keys keys = fa2i_keys_seen(&w->problem, i);
    const size_t index =
        ((size_t)b * (size_t)w->s.heads_q + (size_t)h) * (size_t)w->s.seq_q + (size_t)i;
    host_tensor *o_tensor = &w->tensor[O];
    double *q = must_alloc((size_t)d, sizeof *q), *d_o = must_alloc((size_t)d, sizeof *q);
    double *o = must_alloc((size_t)d, sizeof *q);
    double *p = must_alloc((size_t)seq_k, sizeof *p), *plain = must_alloc((size_t)seq_k, sizeof *p);
    double *slope = must_alloc((size_t)seq_k, sizeof *p);
    double *plain_slope = must_alloc((size_t)seq_k, sizeof *p);
    double largest = -INFINITY, sum = 0;
    read_row(w, Q, b, h, i, q);
    read_row(w, DO, b, h, i, d_o);
    for (int j = keys.first; j < keys.end; j++) {
        cap(w, scale * dot(q, k + (size_t)j * (size_t)d, d), &p[j], &plain[j]);
        slope[j] = slope_at(w, p[j], false);
        plain_slope[j] = slope_at(w, plain[j], true);
        largest = fmax(largest, p[j]);
    }
    for (int j = keys.first; j < keys.end; j++) { /* both by the LSE that kernels get */
        sum += p[j] = exp(p[j] - largest);
        plain[j] = exp(plain[j] - largest);
    }
    w->lse[index] = keys.first == keys.end ? -INFINITY : (float)(largest + log(sum));
    double delta = 0, plain_delta = 0;
    for (int j = keys.first; j < keys.end; j++) {
        p[j] /= sum;
        plain[j] = round_to(w->t->dtype, plain[j] / sum);
        const double dp = dot(d_o, v + (size_t)j * (size_t)d, d);
        delta += p[j] * dp;
        plain_delta += plain[j] * round_to(w->t->dtype, dp);
        add_scaled(o, p[j], v + (size_t)j * (size_t)d, d);
    }
    for (int c = 0; c < d; c++)
        o_tensor->data[row_offset(o_tensor, b, h, i) + (size_t)c] =
            fa2i_to_bits(w->t->dtype, (float)o[c]);
    double *dq = row_of(w->tensor[DQ].exact, w, &w->tensor[DQ], b, h, i);
    double *plain_dq = row_of(w->tensor[DQ].plain, w, &w->tensor[DQ], b, h, i);
    for (int j = keys.first; j < keys.end; j++) {
        const size_t row = (size_t)j * (size_t)d;
        const double dp = dot(d_o, v + row, d);
        const double ds = p[j] * (dp - delta) * slope[j] * scale;
        const double plain_dp =
            round_to(w->t->dtype, plain[j] * (round_to(w->t->dtype, dp) - plain_delta));
        const double plain_ds = round_to(w->t->dtype, plain_dp * plain_slope[j]) * scale;
        add_scaled(dq, ds, k + row, d);
        add_scaled(plain_dq, plain_ds, k + row, d);
        add_scaled(dk + row, ds, q, d);
        add_scaled(plain_dk + row, plain_ds, q, d);
        add_scaled(dv + row, p[j], d_o, d);
        add_scaled(plain_dv + row, plain[j], d_o, d);
    }
    for (int c = 0; c < d; c++)
        plain_dq[c] = round_to(w->t->dtype, plain_dq[c]);
    free(q), free(d_o), free(o), free(p), free(plain), free(slope), free(plain_slope);
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
            for (int i = 0; i < w->s.seq_q; i++)
                query_row(w, b, h, i, k, v,
                          row_of(w->tensor[DK].exact, w, &w->tensor[DK], b, h / group, 0),
                          row_of(w->tensor[DV].exact, w, &w->tensor[DV], b, h / group, 0), part[0],
                          part[1]);
            for (int g = 0; g < 2; g++) {
                double *sum =
                    row_of(w->tensor[DK + g].plain, w, &w->tensor[DK + g], b, h / group, 0);
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
