#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double half_to_double(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double value;
    if (exponent == 31)
        value = fraction == 0 ? INFINITY : NAN;
    else if (exponent == 0)
        value = ldexp(fraction, -24); /* subnormal */
    else
        value = ldexp(1024 + fraction, exponent - 25);
    return half & 0x8000 ? -value : value;
}

uint16_t half_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* Knuth's LCG */
    /* ten random bits give a multiple of 1/512 in [-1, 1) */
    const double value = (double)(*state >> 54) / 512 - 1;
    if (fabs(value) < 1.0 / 512)
        return 0;
    int exponent; /* |value| = mantissa * 2^exponent, mantissa in [0.5, 1) */
    const double mantissa = frexp(fabs(value), &exponent);
    const int fraction = (int)(mantissa * 2048) - 1024;
    return (uint16_t)((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | fraction);
}

static const uint16_t *row_of(const uint16_t *tensor, int seq, int heads, int dim, int b, int h, int i)
{
    return tensor + (((size_t)b * (size_t)seq + (size_t)i) * (size_t)heads + (size_t)h) * (size_t)dim;
}

/* Finds the first and the last key that query row i sees. It sees none if the last is before the first. */
static void keys_seen(const fa2_problem *p, int i, int *ret_first, int *ret_last)
{
    const int at = i + p->seq_k - p->seq_q; /* the query's position among the keys */
    int first = 0, last = p->seq_k - 1;
    if (p->window && p->window_left >= 0 && at - p->window_left > first)
        first = at - p->window_left;
    if (p->window && p->window_right >= 0 && at + p->window_right < last)
        last = at + p->window_right;
    if (p->causal && at < last)
        last = at;
    *ret_first = first;
    *ret_last = last;
}

void reference_row(const fa2_problem *problem, double softcap, const uint16_t *q, const uint16_t *k, const uint16_t *v,
                   int b, int h, int i, double *scores, double *out)
{
    const fa2_problem *p = problem;
    const int kv = h / (p->heads_q / p->heads_kv);
    const uint16_t *query = row_of(q, p->seq_q, p->heads_q, p->head_dim, b, h, i);
    double top = -INFINITY, sum = 0;
    int first, last;
    keys_seen(p, i, &first, &last);
    for (int j = first; j <= last; j++) {
        const uint16_t *key = row_of(k, p->seq_k, p->heads_kv, p->head_dim, b, kv, j);
        double dot = 0;
        for (int d = 0; d < p->head_dim; d++)
            dot += half_to_double(query[d]) * half_to_double(key[d]);
        scores[j] = dot / sqrt(p->head_dim);
        if (p->softcap)
            scores[j] = softcap * tanh(scores[j] / softcap);
        top = fmax(top, scores[j]);
    }
    for (int d = 0; d < p->head_dim; d++)
        out[d] = 0;
    for (int j = first; j <= last; j++) {
        const uint16_t *value = row_of(v, p->seq_k, p->heads_kv, p->head_dim, b, kv, j);
        const double weight = exp(scores[j] - top);
        sum += weight;
        for (int d = 0; d < p->head_dim; d++)
            out[d] += weight * half_to_double(value[d]);
    }
    for (int d = 0; d < p->head_dim && sum > 0; d++)
        out[d] /= sum;
}

/* Reads a head of a tensor as numbers, [seq, head_dim]. */
static void read_head(const uint16_t *tensor, int seq, int heads, int dim, int b, int h, double *ret_head)
{
    for (int i = 0; i < seq; i++)
        for (int d = 0; d < dim; d++)
            ret_head[(size_t)i * (size_t)dim + (size_t)d] = half_to_double(row_of(tensor, seq, heads, dim, b, h, i)[d]);
}

static double dot(const double *a, const double *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add(double *sum, double factor, const double *row, int count)
{
    for (int i = 0; i < count; i++)
        sum[i] += factor * row[i];
}

/* A head of the inputs, and room for a row's weights, the slopes of its cap, and dO V^T. */
typedef struct head {
    double *q, *k, *v, *d_o, *p, *slope, *dp;
} head;

/* Adds the contribution of query row i to the gradients. */
static void add_row(const fa2_problem *problem, double softcap, const head *in, int i, double *dq, double *dk,
                    double *dv)
{
    const int dim = problem->head_dim;
    const double scale = 1 / sqrt(dim);
    const double *q = in->q + (size_t)i * (size_t)dim, *d_o = in->d_o + (size_t)i * (size_t)dim;
    double top = -INFINITY, sum = 0, delta = 0;
    int first, last;
    keys_seen(problem, i, &first, &last);
    for (int j = first; j <= last; j++) {
        const double score = scale * dot(q, in->k + (size_t)j * (size_t)dim, dim);
        const double bent = problem->softcap ? tanh(score / softcap) : 0;
        in->p[j] = problem->softcap ? softcap * bent : score;
        in->slope[j] = 1 - bent * bent;
        in->dp[j] = dot(d_o, in->v + (size_t)j * (size_t)dim, dim);
        top = fmax(top, in->p[j]);
    }
    for (int j = first; j <= last; j++)
        sum += in->p[j] = exp(in->p[j] - top);
    for (int j = first; j <= last; j++) {
        in->p[j] /= sum;
        delta += in->p[j] * in->dp[j];
    }
    for (int j = first; j <= last; j++) {
        const size_t key = (size_t)j * (size_t)dim;
        const double ds = scale * in->slope[j] * in->p[j] * (in->dp[j] - delta);
        add(dq + (size_t)i * (size_t)dim, ds, in->k + key, dim);
        add(dk + key, ds, q, dim);
        add(dv + key, in->p[j], d_o, dim);
    }
}

int reference_gradients(const fa2_problem *problem, double softcap, const uint16_t *q, const uint16_t *k,
                        const uint16_t *v, const uint16_t *d_o, int b, int h, double *dq, double *dk, double *dv)
{
    const fa2_problem *p = problem;
    const size_t of_q = (size_t)p->seq_q * (size_t)p->head_dim, of_k = (size_t)p->seq_k * (size_t)p->head_dim,
                 keys = (size_t)p->seq_k;
    double *all = malloc((2 * of_q + 2 * of_k + 3 * keys) * sizeof(*all));
    if (all == NULL)
        return -1;
    const head in = {.q = all,
                     .d_o = all + of_q,
                     .k = all + 2 * of_q,
                     .v = all + 2 * of_q + of_k,
                     .p = all + 2 * of_q + 2 * of_k,
                     .slope = all + 2 * of_q + 2 * of_k + keys,
                     .dp = all + 2 * of_q + 2 * of_k + 2 * keys};
    read_head(q, p->seq_q, p->heads_q, p->head_dim, b, h, in.q);
    read_head(d_o, p->seq_q, p->heads_q, p->head_dim, b, h, in.d_o);
    read_head(k, p->seq_k, p->heads_q, p->head_dim, b, h, in.k);
    read_head(v, p->seq_k, p->heads_q, p->head_dim, b, h, in.v);
    memset(dq, 0, of_q * sizeof(*dq));
    memset(dk, 0, of_k * sizeof(*dk));
    memset(dv, 0, of_k * sizeof(*dv));
    for (int i = 0; i < p->seq_q; i++)
        add_row(p, softcap, &in, i, dq, dk, dv);
    free(all);
    return 0;
}
