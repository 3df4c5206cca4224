/*
 * Each term on its own, element by element: slow, but easy to compare with fa2.h.
 */
#include "tuner/judge/features.h"

#include <math.h>
#include "runtime/base/problem.h"
#include "runtime/ops/dropout.h"
#include "templates/features/limits.def"
#include "tuner/judge/number.h"

/* The relative error that tanh.approx guarantees. */
#define TANH_ERROR 0x1p-11

double fa2i_score_modified(double score, const fa2i_factors *factors)
{
    const double cap = fa2i_cap_of(factors);
    return cap > 0 ? cap * tanh(score / cap) : score;
}

double fa2i_score_before(double modified, const fa2i_factors *factors)
{
    const double cap = fa2i_cap_of(factors);
    return cap > 0 ? cap * atanh(modified / cap) : modified;
}

float fa2i_plain_score(fa2_dtype dtype, double score, const fa2i_factors *factors, float *ret_slope)
{
    const float cap = (float)fa2i_cap_of(factors), rounded = fa2i_rounded(dtype, (float)score);
    *ret_slope = 1;
    if (cap == 0)
        return rounded;
    const float t = fa2i_rounded(dtype, tanhf(fa2i_rounded(dtype, rounded / cap)));
    *ret_slope = 1 - t * t;
    return fa2i_rounded(dtype, t * cap);
}

fa2i_slope fa2i_score_slope(double score, const fa2i_factors *factors)
{
    const double cap = fa2i_cap_of(factors), t = cap > 0 ? tanh(score / cap) : 0;
    return (fa2i_slope){1 - t * t, expm1(cap * fabs(t) * TANH_ERROR), 2 * t * t * TANH_ERROR};
}

double fa2i_score_error(const fa2i_factors *factors)
{
    return TANH_ERROR * fa2i_cap_of(factors);
}

static double alibi_term(const fa2_problem *p, const fa2i_features *f, int32_t batch, int32_t head, int32_t query,
                         int32_t key)
{
    const double distance = (double)((int64_t)query + p->seq_k - p->seq_q - key) + (double)f->distance_shift;
    const float *slopes = f->data[FA2I_OPERAND_alibi_slopes];
    const int64_t stride = f->strides[FA2I_OPERAND_alibi_slopes][0];
    return -(double)slopes[batch * stride + head] * fabs(distance);
}

static double bias_term(const fa2_problem *p, const fa2i_features *f, int32_t batch, int32_t head, int32_t query,
                        int32_t key)
{
    const void *bias = f->data[FA2I_OPERAND_bias];
    const int64_t *strides = f->strides[FA2I_OPERAND_bias];
    const int64_t at =
        (batch * strides[0] + head * strides[1] + query * strides[2] + (f->bias_first + key) * strides[3]) %
        f->period[FA2I_OPERAND_bias];
    switch (fa2i_bias_type(p->bias)) {
    case FA2_BIAS_FP16:
        return (double)fa2i_from_bits(FA2_FP16, ((const uint16_t *)bias)[at]);
    case FA2_BIAS_BF16:
        return (double)fa2i_from_bits(FA2_BF16, ((const uint16_t *)bias)[at]);
    case FA2_BIAS_FP32:
        return (double)((const float *)bias)[at];
    case FA2_BIAS_BOOL:
        return ((const unsigned char *)bias)[at] != 0 ? 0 : -INFINITY;
    default:
        break;
    }
    return 0;
}

double fa2i_score_term(const fa2_problem *problem, const fa2i_features *features, int32_t batch, int32_t head,
                       int32_t query, int32_t key, double score)
{
    double term = 0;
    if (problem->alibi)
        term += alibi_term(problem, features, batch, head, query, key);
    if (problem->bias == FA2_BIAS_NONE)
        return term;
    term += bias_term(problem, features, batch, head, query, key);
    /* Kernels begin maxima of rows there (templates/features/hidden.cuh): the same where no number is near the bound. */
    return problem->bias != FA2_BIAS_BOOL && score + term < (double)FA2I_LEAST_SCORE ? -INFINITY : term;
}

double fa2i_sink_score(const fa2_problem *problem, const fa2i_features *features, int32_t head)
{
    const float *of_heads = features->data[FA2I_OPERAND_sinks];
    return fa2i_operand_is_asked(problem, FA2I_OPERAND_sinks) ? (double)of_heads[head] : -INFINITY;
}

double fa2i_kept(const fa2_problem *problem, const fa2i_features *features, int32_t batch, int32_t head, int32_t query,
                 int32_t key)
{
    const fa2_dropout *d = &features->dropout;
    const fa2_dropout_origin *origin = &features->origin;
    if (!problem->dropout)
        return 1;
    const int64_t plane =
        (int64_t)batch * (origin->heads != 0 ? origin->heads : problem->heads_q) + origin->head + head;
    return fa2i_dropout_keeps(d->p, d->seed, d->offset, plane, origin->row + query, origin->column + key)
               ? (double)fa2i_dropout_scale(d->p)
               : 0;
}
