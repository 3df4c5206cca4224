#include "reference.h"

#include <math.h>

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
    *state =
        *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407); /* Knuth's LCG */
    /* ten random bits make a multiple of 1/512 in [-1, 1) */
    const double value = (double)(*state >> 54) / 512 - 1;
    if (fabs(value) < 1.0 / 512)
        return 0;
    int exponent; /* |value| = mantissa * 2^exponent, mantissa in [0.5, 1) */
    const double mantissa = frexp(fabs(value), &exponent);
    const int fraction = (int)(mantissa * 2048) - 1024;
    return (uint16_t)((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | fraction);
}

static const uint16_t *row_of(const uint16_t *tensor, int seq, int heads, int dim, int b, int h,
                              int i)
{
    return tensor +
           (((size_t)b * (size_t)seq + (size_t)i) * (size_t)heads + (size_t)h) * (size_t)dim;
}

/* The first and the last key that query row i sees; none when the last is before the first. */
static void keys_seen(const fa2_problem *p, int i, int *ret_first, int *ret_last)
{
    const int at = i + p->seq_k - p->seq_q; /* where the query stands among the keys */
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

void reference_row(const fa2_problem *problem, double softcap, const uint16_t *q, const uint16_t *k,
                   const uint16_t *v, int b, int h, int i, double *scores, double *out)
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
