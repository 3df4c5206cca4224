/*
 * Attention in fp64, row by row, together with the plain low-precision implementation. attention.h says which keys a
 * row sees and how scores are capped.
 *
 * The rows are split into contiguous parts, one per thread. A part converts K and V of a head to float once, and again
 * only when the head changes. Products of two numbers of fp32 or less are exact in fp64. So the reference's only error
 * comes from fp64 sums, far below the errors that are compared. The plain scores are the fp64 scores rounded to the
 * dtype: the rounding hides how they were summed.
 */
#include <math.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tuner/judge/attention.h"
#include "tuner/judge/fp8_values.h"
#include "tuner/judge/int8_scores.h"
#include "tuner/judge/judge.h"
#include "tuner/judge/kv8.h"
#include "tuner/judge/reference.h"

static const double LSE_RELATIVE = 2e-5;

/* The share of the bounds of LSE that a dtype has: scores of fp32 elements are more exact. */
static double lse_share(fa2_dtype dtype)
{
    return dtype == FA2_FP32 ? 0x1p-4 : 1;
}

/* One thread's rows and buffers. */
typedef struct part {
    const fa2i_reference_request *request;
    fa2i_reference *reference;
    fa2i_features features; /* of the present sequence */
    size_t begin, end;
    double scale;
    float *q, *k, *v;    /* [D], [Sk, D], [Sk, Dv] */
    double *scores;      /* [Sk] */
    double *kept;        /* [Sk], factors of P */
    double *terms;       /* [Sk], numbers added to capped scores */
    float *plain;        /* [Sk] scores, then P; after them [Dv] O */
    fa2i_int8_keys int8; /* if scores may be rounded */
    double v_most;       /* the largest magnitude of V, if values may be rounded */
    double *o_variances; /* [Dv], likewise */
    double plain_error;
} part;

/* Returns the score of a key, summed in fp32. */
static double plain_score_of(const part *p, int32_t key)
{
    const int head_dim = p->request->problem.head_dim;
    return (double)(fa2i_plain_dot(p->q, p->k + (int64_t)key * head_dim, head_dim) * (float)p->scale);
}

/* Computes O by the plain implementation and compares it with the exact o. p->scores are the scores of the keys, not
 * capped. */
static void plain_row(part *p, fa2i_keys keys, double sink, const double *o)
{
    const fa2_problem *problem = &p->request->problem;
    const int columns = fa2i_head_dim_v(problem);
    float *acc = p->plain + problem->seq_k;
    float largest = (float)sink, slope;
    memset(acc, 0, (size_t)columns * sizeof *acc);
    for (int32_t j = keys.first; j < keys.end; j++) {
        const double score = problem->dtype == FA2_FP32 ? plain_score_of(p, j) : p->scores[j];
        p->plain[j] = fa2i_plain_score(problem->dtype, score, &p->request->factors, &slope);
        if (p->terms[j] != 0)
            p->plain[j] = fa2i_rounded(problem->dtype, p->plain[j] + fa2i_rounded(problem->dtype, (float)p->terms[j]));
        largest = fmaxf(largest, p->plain[j]);
    }
    float sum = isinf(sink) ? 0 : expf((float)sink - largest);
    for (int32_t j = keys.first; j < keys.end; j++) {
        p->plain[j] = expf(p->plain[j] - largest);
        sum += p->plain[j];
    }
    for (int32_t j = keys.first; j < keys.end; j++) {
        float weight = fa2i_rounded(problem->dtype, p->plain[j] / sum);
        if (problem->dropout)
            weight = fa2i_rounded(problem->dtype, weight * (float)p->kept[j]);
        const float *v = p->v + (int64_t)j * columns;
        for (int d = 0; d < columns; d++)
            acc[d] += weight * v[d];
    }
    for (int d = 0; d < columns; d++) {
        const float result = problem->partial == FA2_PARTIAL_NONE ? fa2i_rounded(problem->dtype, acc[d]) : acc[d];
        const double error = fabs((double)result - o[d]);
        p->plain_error = fmax(p->plain_error, fmax(error, fa2i_half_unit(problem->dtype, o[d])));
    }
}

/* Computes a row. Leaves the scores, not capped, in p->scores, the numbers added to them in p->terms, and the factors
 * of P in p->kept. ret_size: the mean magnitude of the scores and of what is added to them. Returns false if the row sees
 * no key; then o is unchanged. */
static bool exact_row(part *p, const fa2_problem *sequence, fa2i_row row, fa2i_keys keys, double sink, double *o,
                      double *ret_lse, double *ret_size)
{
    const fa2i_reference_request *request = p->request;
    const int head_dim = request->problem.head_dim, columns = fa2i_head_dim_v(&request->problem);
    double largest = sink;
    for (int32_t j = keys.first; j < keys.end; j++) {
        p->scores[j] = p->scale * fa2i_dot(p->q, p->k + (int64_t)j * head_dim, head_dim);
        const double capped = fa2i_score_modified(p->scores[j], &request->factors);
        p->terms[j] = fa2i_score_term(sequence, &p->features, row.batch, row.head, row.row, j, capped);
        p->kept[j] = fa2i_kept(sequence, &p->features, row.batch, row.head, row.row, j);
        largest = fmax(largest, capped + p->terms[j]);
    }
    *ret_lse = largest;
    if (isinf(largest))
        return false;
    double sum = isinf(sink) ? 0 : exp(sink - largest), weights = 0, size = 0;
    for (int32_t j = keys.first; j < keys.end; j++) {
        const double capped = fa2i_score_modified(p->scores[j], &request->factors);
        double weight = exp(capped + p->terms[j] - largest);
        const float *v = p->v + (int64_t)j * columns;
        weights += weight;
        size += weight > 0 ? weight * (fabs(capped) + fabs(p->terms[j])) : 0;
        weight *= p->kept[j];
        for (int d = 0; d < columns; d++)
            o[d] += weight * v[d];
    }
    sum += weights;
    for (int d = 0; d < columns; d++)
        o[d] /= sum;
    *ret_lse = largest + log(sum);
    *ret_size = size / sum;
    return weights > 0;
}

/* O in fp32 shows that the scores of a row have errors, even where the plain implementation has none: of one key, whose
 * P is 1, the sum is not. */
static double allowed_of_scores(const double *o, int columns, double size)
{
    double largest = 0;
    for (int d = 0; d < columns; d++)
        largest = fmax(largest, fabs(o[d]));
    return FA2I_SCORE_ERROR * size * largest;
}

/* Computes what rounded scores and values may change of a row whose results are known. Scores become weights. */
static void allow_rounding(part *p, fa2i_keys keys, size_t row)
{
    const fa2i_reference *reference = p->reference;
    const int columns = reference->head_dim_v;
    const double *o = reference->o + row * (size_t)columns;
    const fa2i_factors *factors = &p->request->factors;
    const fa2i_int8_query query = fa2i_int8_query_of(p->q, p->request->problem.head_dim, p->scale, &p->int8);
    const bool fp8 = p->request->problem.pv == FA2_PV_FP8;
    double largest = 0, of_lse = 0, most_weight = 0, lost = 0;
    memset(p->o_variances, 0, (size_t)columns * sizeof *p->o_variances);
    for (int32_t j = keys.first; j < keys.end; j++) {
        p->scores[j] = exp(fa2i_score_modified(p->scores[j], factors) + p->terms[j] - reference->lse[row]);
        most_weight = fmax(most_weight, p->scores[j]);
    }
    for (int32_t j = keys.first; j < keys.end; j++) {
        const double variance = fa2i_int8_variance(&query, &p->int8, j), weight = p->scores[j];
        of_lse += weight * variance;
        if (fp8 && fa2i_fp8_vanishes(weight, most_weight))
            lost += weight;
        for (int d = 0; d < columns; d++) {
            const double v = p->kept[j] * (double)p->v[(int64_t)j * columns + d], change = weight * (v - o[d]);
            p->o_variances[d] += change * change * variance;
            if (fp8)
                p->o_variances[d] += fa2i_fp8_variance(weight, v, p->v_most);
        }
    }
    for (int d = 0; d < columns; d++)
        largest = fmax(largest, p->o_variances[d]);
    /* Changes of equal keys are equal. */
    const double sigmas = FA2I_INT8_SIGMAS * sqrt((double)fa2i_host_repeats(&p->request->k, p->request->problem.seq_k));
    reference->allowed_o[row] += sigmas * sqrt(largest) + 2 * lost * p->v_most;
    reference->allowed_lse[row] += sigmas * sqrt(of_lse) + (fp8 ? FA2I_FP8_LSE + lost : 0);
}

/* Writes a row that is in no sequence: 0, or NaN for a row between the bounds, which kernels do not write. */
static void put_unused(part *p, size_t i)
{
    const fa2i_reference_request *request = p->request;
    const size_t columns = (size_t)fa2i_head_dim_v(&request->problem);
    const bool cleared = fa2i_row_is_unused(&request->problem, &request->said, request->rows[i].row, false);
    for (size_t d = 0; d < columns; d++)
        p->reference->o[i * columns + d] = cleared ? 0 : NAN;
    p->reference->lse[i] = cleared ? -INFINITY : NAN;
    p->reference->empty[i] = cleared;
}

/* Loads a row of K or V from the cache. */
static void load_cached(const fa2i_reference_request *request, bool is_key, const fa2i_sequence *s, int head,
                        int columns, int32_t row, float *out)
{
    const fa2_problem *p = &request->problem;
    const int64_t batch = p->paged ? fa2i_page_of(p, &request->said, s->index, row) : s->batch;
    const int64_t own = p->paged ? row % fa2i_forward_page(p) : row;
    const int scales = is_key ? FA2I_OPERAND_k_scale : FA2I_OPERAND_v_scale;
    const fa2i_host_tensor *tensor = is_key ? &request->k : &request->v;
    if (p->kv != FA2_KV_DTYPE)
        fa2i_kv8_row(p, tensor, &request->features, scales, batch, own, head, columns, out);
    else
        fa2i_host_row(tensor, p->dtype,
                      batch * tensor->stride_batch + own * tensor->stride_seq + head * tensor->stride_head, columns,
                      out);
}

/* Loads a new row. If V lies in K, its columns are rotated like K's. */
static void load_new(const fa2i_reference_request *request, bool is_key, const fa2i_sequence *s, int head, int columns,
                     int32_t row, float *out)
{
    const fa2_problem *p = &request->problem;
    const bool of_key = is_key || p->v_in_k;
    const fa2i_host_tensor *tensor = of_key ? &request->new_k : &request->new_v;
    const int32_t own = row - s->first_new, batch = p->varlen ? 0 : s->index;
    float whole[FA2I_MOST_head_dim];
    fa2i_host_row(tensor, p->dtype,
                  batch * tensor->stride_batch + (s->first_q + own) * tensor->stride_seq + head * tensor->stride_head,
                  of_key ? p->head_dim : columns, whole);
    if (of_key && p->rotary != FA2_ROTARY_NONE)
        fa2i_rotate(p, &request->angles, s->before + own, whole);
    if (p->kv != FA2_KV_DTYPE) {
        int8_t bytes[FA2I_MOST_head_dim];
        const float scale = fa2i_kv8_round(p, columns, whole, bytes);
        for (int d = 0; d < columns; d++)
            whole[d] = fa2i_kv8_number(p->kv, bytes[d]) * scale;
    }
    memcpy(out, whole, (size_t)columns * sizeof *out);
}

/* Loads the keys or values of a head of a sequence, `columns` per row, unless they are there already. Returns whether
 * it loaded them. */
static bool load_keys(const fa2i_reference_request *request, bool is_key, const fa2i_sequence *s, int head, int columns,
                      float *out, int64_t *at)
{
    const fa2_problem *p = &request->problem;
    const int64_t own = (int64_t)s->index * p->heads_kv + head;
    if (own == *at) /* compares sequence and head, not addresses: sequences that share memory may have other lengths */
        return false;
    *at = own;
    for (int32_t j = 0; j < s->problem.seq_k; j++, out += columns) {
        const int32_t row = s->first_k + j;
        if (p->append && fa2i_key_is_new(p, &request->said, s, row))
            load_new(request, is_key, s, head, columns, row, out);
        else
            load_cached(request, is_key, s, head, columns, row, out);
    }
    return true;
}

static void *run_part(void *argument)
{
    part *p = argument;
    const fa2i_reference_request *request = p->request;
    const fa2_problem *problem = &request->problem;
    const int group = problem->heads_q / problem->heads_kv, columns = fa2i_head_dim_v(problem);
    int64_t k_at = -1, v_at = -1; /* what p->k and p->v hold */
    for (size_t i = p->begin; i < p->end; i++) {
        fa2i_row row = request->rows[i];
        double *o = p->reference->o + i * (size_t)columns; /* zero so far */
        const fa2i_sequence s = fa2i_sequence_at(problem, &request->said, row.batch, row.row, false);
        if (s.first_q < 0) {
            put_unused(p, i);
            continue;
        }
        const fa2i_row own = {.batch = s.index, .head = row.head, .row = row.row - s.first_q};
        const fa2i_keys keys = fa2i_keys_seen(&s.problem, own.row);
        const double sink = fa2i_sink_score(problem, &request->features, row.head);
        if (keys.first == keys.end) {
            p->reference->lse[i] = sink;
            p->reference->empty[i] = true;
            continue;
        }
        if (load_keys(request, true, &s, row.head / group, problem->head_dim, p->k, &k_at) && p->int8.squares != NULL)
            fa2i_int8_measure(p->k, s.problem.seq_k, problem->head_dim, &p->int8);
        if (load_keys(request, false, &s, row.head / group, columns, p->v, &v_at) && problem->pv == FA2_PV_FP8)
            p->v_most = fa2i_fp8_most(p->v, (size_t)s.problem.seq_k * (size_t)columns);
        fa2i_host_row(&request->q, problem->dtype,
                      row.batch * request->q.stride_batch + row.row * request->q.stride_seq +
                          row.head * request->q.stride_head,
                      problem->head_dim, p->q);
        if (problem->rotary != FA2_ROTARY_NONE)
            fa2i_rotate(problem, &request->angles, fa2i_query_position(problem, s.before, own.row), p->q);
        p->features.bias_first = problem->leftpad ? s.first_k : 0;
        double *lse = &p->reference->lse[i], *size = &p->reference->sizes[i];
        p->reference->empty[i] = !exact_row(p, &s.problem, own, keys, sink, o, lse, size);
        p->reference->allowed_lse[i] = lse_share(problem->dtype) * LSE_RELATIVE * fmax(0, *size - fabs(*lse));
        if (problem->partial != FA2_PARTIAL_NONE || problem->carry)
            p->reference->allowed_o[i] = allowed_of_scores(o, columns, *size);
        if (!p->reference->empty[i])
            plain_row(p, keys, sink, o);
        if (!p->reference->empty[i] && p->int8.squares != NULL)
            allow_rounding(p, keys, i);
    }
    return NULL;
}

static fa2_status part_init(part *p)
{
    fa2_status st = FA2_OK;
    const size_t head_dim = (size_t)p->request->problem.head_dim;
    const size_t columns = (size_t)fa2i_head_dim_v(&p->request->problem);
    const size_t keys = (size_t)p->request->problem.seq_k;
    FA2_TRY(FA2I_NEW(p->q, head_dim));
    FA2_TRY(FA2I_NEW(p->k, keys * head_dim));
    FA2_TRY(FA2I_NEW(p->v, keys * columns));
    FA2_TRY(FA2I_NEW(p->scores, keys));
    FA2_TRY(FA2I_NEW(p->terms, keys));
    FA2_TRY(FA2I_NEW(p->kept, keys));
    FA2_TRY(FA2I_NEW(p->plain, keys + columns));
    if (p->request->problem.scores == FA2_SCORES_INT8) {
        FA2_TRY(FA2I_NEW(p->int8.squares, keys));
        FA2_TRY(FA2I_NEW(p->o_variances, columns));
    }
done:
    return st;
}

static void part_done(part *p)
{
    fa2i_free(p->q);
    fa2i_free(p->k);
    fa2i_free(p->v);
    fa2i_free(p->scores);
    fa2i_free(p->terms);
    fa2i_free(p->kept);
    fa2i_free(p->plain);
    fa2i_free(p->int8.squares);
    fa2i_free(p->o_variances);
}

/* Bytes that a part needs for the keys of a head. */
static size_t part_bytes(const fa2_problem *problem)
{
    const size_t keys = (size_t)problem->seq_k;
    const size_t columns = (size_t)problem->head_dim + (size_t)fa2i_head_dim_v(problem);
    return keys * (columns * sizeof(float) + 3 * sizeof(double) + sizeof(float));
}

fa2_status fa2i_reference_compute(const fa2i_reference_request *request, fa2i_reference *ret_reference)
{
    fa2_status st = FA2_OK;
    const fa2_problem *problem = &request->problem;
    /* A sum of 128 keys in fp16 is rounded eight times. In the mean that is less than twice the plain error, but among
     * 20,000 elements one was wrong by 2.6 times the largest plain error. */
    fa2i_reference reference = {.row_count = request->row_count,
                                .head_dim_v = fa2i_head_dim_v(problem),
                                .factors = request->factors,
                                .times_plain = problem->sums == FA2_SUMS_FAST || problem->dtype == FA2_FP32 ? 3 : 2,
                                .floor = problem->dtype == FA2_FP32 ? 2e-6 : 1e-5};
    part parts[FA2I_PARTS_MAX] = {{0}};
    size_t count = fa2i_count_parts(request->threads, request->row_count, part_bytes(problem));
    const double scale = fa2i_softmax_scale(problem, request->factors.softmax_scale);

    FA2_TRY(FA2I_NEW(reference.o, request->row_count * (size_t)reference.head_dim_v));
    FA2_TRY(FA2I_NEW(reference.lse, request->row_count));
    FA2_TRY(FA2I_NEW(reference.empty, request->row_count));
    FA2_TRY(FA2I_NEW(reference.sizes, request->row_count));
    FA2_TRY(FA2I_NEW(reference.allowed_lse, request->row_count));
    if (problem->scores == FA2_SCORES_INT8 || problem->partial != FA2_PARTIAL_NONE || problem->carry)
        FA2_TRY(FA2I_NEW(reference.allowed_o, request->row_count));
    for (size_t i = 0; i < count; i++) {
        parts[i] = (part){.request = request,
                          .reference = &reference,
                          .features = request->features,
                          .scale = scale,
                          .begin = request->row_count * i / count,
                          .end = request->row_count * (i + 1) / count};
        FA2_TRY(part_init(&parts[i]));
    }
    fa2i_run_parts(run_part, parts, sizeof *parts, count);
    for (size_t i = 0; i < count; i++)
        reference.plain_error = fmax(reference.plain_error, parts[i].plain_error);
    *ret_reference = reference;
    reference = (fa2i_reference){0};
done:
    for (size_t i = 0; i < count; i++)
        part_done(&parts[i]);
    fa2i_reference_done(&reference);
    return st;
}

void fa2i_reference_done(fa2i_reference *reference)
{
    fa2i_free(reference->o);
    fa2i_free(reference->lse);
    fa2i_free(reference->empty);
    fa2i_free(reference->sizes);
    fa2i_free(reference->allowed_o);
    fa2i_free(reference->allowed_lse);
    *reference = (fa2i_reference){0};
}

fa2i_bound fa2i_reference_bound(const fa2i_reference *reference)
{
    return (fa2i_bound){.absolute = reference->times_plain * reference->plain_error + reference->floor};
}

fa2i_bound fa2i_lse_bound(fa2_dtype dtype, const fa2i_factors *factors)
{
    return (fa2i_bound){.absolute = lse_share(dtype) * 2e-4 + fa2i_score_error(factors),
                        .relative = lse_share(dtype) * LSE_RELATIVE};
}
