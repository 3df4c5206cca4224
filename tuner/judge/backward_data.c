/*
 * In the cases of the verification, O and LSE are the results of forward. For tuned problems that would take the host
 * minutes. They get random O, and random LSE around a usual value. Then any row can be computed by itself.
 */
#include "tuner/judge/backward_data.h"

#include <math.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/ops/call.h"
#include "tuner/judge/feature_data.h"
#include "tuner/judge/number.h"

/* The LSE of scores with standard deviation 1, over as many keys as the last query sees. */
static float usual_lse(const fa2_problem *p)
{
    const fa2i_keys keys = fa2i_keys_seen(p, p->seq_q - 1);
    return (float)(log(fmax(keys.end - keys.first, 1)) + 0.5);
}

/* The inputs and buffers of a forward on the host. */
typedef struct forward {
    void *blocks[O]; /* Q, K, V */
    void *feature_blocks[FA2I_OPERAND_COUNT];
    fa2i_features features;
    fa2i_factors factors;
    double scale;
    float *q, *k, *v;   /* [D], [Sk, D], [Sk, Dv] */
    double *scores, *o; /* [Sk], [Dv] */
    fa2i_inputs inputs;
} forward;

static void forward_done(forward *f)
{
    for (int i = Q; i <= V; i++)
        fa2i_free(f->blocks[i]);
    for (int i = 0; i < FA2I_OPERAND_COUNT; i++)
        fa2i_free(f->feature_blocks[i]);
    fa2i_free(f->q);
    fa2i_free(f->k);
    fa2i_free(f->v);
    fa2i_free(f->scores);
    fa2i_free(f->o);
}

/* Makes the operands of the case's features. */
static fa2_status forward_features(const fa2i_case *c, forward *f)
{
    fa2_status st = FA2_OK;
    for (int i = 0; st == FA2_OK && i < FA2I_OPERAND_COUNT; i++) {
        const int operand = FEATURES + i;
        const size_t period = fa2i_operand_is_gradient(i) ? 0 : fa2i_case_period(c, operand);
        if (period == 0)
            continue;
        f->feature_blocks[i] = fa2i_alloc(period * fa2i_case_extent(c, operand).elem_bytes);
        if (f->feature_blocks[i] == NULL)
            return fa2i_fail(FA2_E_MEMORY, "no memory for test data");
        f->inputs.data[operand] = f->feature_blocks[i];
        f->inputs.period[operand] = period;
        st = fa2i_case_fill(c, operand, f->feature_blocks[i]);
    }
    f->features = fa2i_case_features(c, &f->inputs);
    return st;
}

static fa2_status forward_init(const fa2i_case *c, forward *f)
{
    const size_t keys = (size_t)c->problem.seq_k, head_dim = (size_t)c->problem.head_dim;
    const size_t columns = (size_t)fa2i_head_dim_v(&c->problem);
    fa2_status st = FA2_OK;
    f->scale = fa2i_softmax_scale(&c->problem, c->factors.softmax_scale);
    f->factors = c->factors;
    f->q = fa2i_alloc_array(head_dim, sizeof *f->q);
    f->k = fa2i_alloc_array(keys * head_dim, sizeof *f->k);
    f->v = fa2i_alloc_array(keys * columns, sizeof *f->v);
    f->scores = fa2i_alloc_array(keys, sizeof *f->scores);
    f->o = fa2i_alloc_array(columns, sizeof *f->o);
    bool got = f->q != NULL && f->k != NULL && f->v != NULL && f->scores != NULL && f->o != NULL;
    for (int i = Q; got && i <= V; i++) {
        f->inputs.period[i] = fa2i_case_period(c, i);
        f->blocks[i] = fa2i_alloc_array(f->inputs.period[i], fa2i_case_extent(c, i).elem_bytes);
        f->inputs.data[i] = f->blocks[i];
        got = f->blocks[i] != NULL;
    }
    if (!got)
        return fa2i_fail(FA2_E_MEMORY, "no memory for test data");
    for (int i = Q; st == FA2_OK && i <= V; i++)
        st = fa2i_case_fill(c, i, f->blocks[i]);
    return st == FA2_OK ? forward_features(c, f) : st;
}

/* Returns the LSE of the row that is in f->q. with_o: also leaves its O in f->o. */
static double forward_row(const fa2_problem *p, forward *f, fa2i_row row, bool with_o)
{
    const fa2i_keys keys = fa2i_keys_seen(p, row.row);
    const int columns = fa2i_head_dim_v(p);
    const double sink = fa2i_sink_score(p, &f->features, row.head);
    double largest = sink;
    memset(f->o, 0, (size_t)columns * sizeof *f->o);
    for (int32_t j = keys.first; j < keys.end; j++) {
        const double score =
            fa2i_score_modified(f->scale * fa2i_dot(f->q, f->k + (int64_t)j * p->head_dim, p->head_dim), &f->factors);
        f->scores[j] = score + fa2i_score_term(p, &f->features, row.batch, row.head, row.row, j, score);
        largest = fmax(largest, f->scores[j]);
    }
    if (isinf(largest)) /* it sees no key */
        return -INFINITY;
    double sum = isinf(sink) ? 0 : exp(sink - largest);
    for (int32_t j = keys.first; j < keys.end; j++) {
        const double weight = exp(f->scores[j] - largest);
        const double kept = fa2i_kept(p, &f->features, row.batch, row.head, row.row, j);
        sum += weight;
        for (int d = 0; with_o && d < columns; d++)
            f->o[d] += weight * kept * f->v[(int64_t)j * columns + d];
    }
    for (int d = 0; d < columns; d++)
        f->o[d] /= sum;
    return largest + log(sum);
}

/* Writes NaN into rows of no sequence, because they must not enter any sum. */
static fa2_status spoil_unused(const fa2i_case *c, int operand, void *out)
{
    const fa2_problem *p = &c->problem;
    const bool of_keys = operand == K || operand == V;
    const size_t count = (size_t)p->batch + 1;
    const fa2i_extent e = fa2i_case_extent(c, operand);
    int32_t *bounds = fa2i_alloc_array(count, sizeof *bounds);
    fa2_status st = FA2_OK;
    if (bounds == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for test data");
    FA2_TRY(fa2i_feature_fill(c, FEATURES + (of_keys ? FA2I_OPERAND_cu_seqlens_k : FA2I_OPERAND_cu_seqlens_q), count,
                              bounds));
    const fa2i_said said = {.cu_seqlens_q = bounds, .cu_seqlens_k = bounds};
    for (int32_t h = 0; h < e.heads; h++)
        for (int32_t row = 0; row < e.seq; row++)
            if (fa2i_row_is_unused(p, &said, row, of_keys))
                memset((char *)out + (size_t)fa2i_extent_at(&e, 0, h, row) * e.elem_bytes, 0xff,
                       (size_t)e.width * e.elem_bytes);
done:
    fa2i_free(bounds);
    return st;
}

/* Fills all of O or LSE with the results of forward. Leaves gaps between rows as they are. */
static fa2_status fill_forward(const fa2i_case *c, int operand, void *out)
{
    const fa2_problem *p = &c->problem;
    const fa2i_extent e = fa2i_case_extent(c, operand);
    const int32_t group = p->heads_q / p->heads_kv, columns = fa2i_head_dim_v(p);
    int64_t k_at = -1, v_at = -1;
    fa2_status st = FA2_OK;
    forward f = {0};
    FA2_TRY(forward_init(c, &f));
    const fa2i_host_tensor q = fa2i_case_host_tensor(c, &f.inputs, Q);
    const fa2i_host_tensor k = fa2i_case_host_tensor(c, &f.inputs, K);
    const fa2i_host_tensor v = fa2i_case_host_tensor(c, &f.inputs, V);
    const fa2i_said said = fa2i_case_said(c, &f.inputs);
    for (int32_t b = 0; b < p->batch; b++) {
        const fa2i_sequence s = fa2i_sequence_of(p, &said, b);
        for (int32_t h = 0; s.problem.seq_q > 0 && h < p->heads_q; h++) {
            fa2i_sequence_head(&k, &s, h / group, s.first_k, s.problem.seq_k, p->head_dim, f.k, &k_at);
            fa2i_sequence_head(&v, &s, h / group, s.first_k, s.problem.seq_k, columns, f.v, &v_at);
            for (int32_t i = 0; i < s.problem.seq_q; i++) {
                const int64_t at = fa2i_extent_at(&e, s.batch, h, s.first_q + i);
                fa2i_host_row(&q, p->dtype, fa2i_host_row_at(&q, s.batch, h, s.first_q + i), p->head_dim, f.q);
                const double lse = forward_row(&s.problem, &f, (fa2i_row){b, h, i}, operand == O);
                if (operand == LSE)
                    ((float *)out)[at] = (float)lse;
                for (int d = 0; operand == O && d < columns; d++)
                    fa2i_put_number(p->dtype, out, (size_t)at + (size_t)d, (float)f.o[d]);
            }
        }
    }
done:
    forward_done(&f);
    return st;
}

fa2_status fa2i_backward_data(const fa2i_case *c, int operand, size_t count, void *out)
{
    const float magnitude = operand == Q ? c->q_magnitude : operand == O ? 1 / sqrtf((float)c->problem.seq_k) : 1.0f;
    if (operand == LSE)
        for (size_t i = 0; i < count; i++)
            ((float *)out)[i] = usual_lse(&c->problem);
    else
        fa2i_case_fill_normal(c, operand, magnitude, count, out);
    if (c->pattern != FA2I_PATTERN_FORWARD)
        return FA2_OK;
    const fa2_status st = operand == O || operand == LSE ? fill_forward(c, operand, out) : FA2_OK;
    const bool whole = count >= (size_t)fa2i_case_extent(c, operand).elems; /* not a block that is repeated */
    return st == FA2_OK && c->problem.varlen && whole ? spoil_unused(c, operand, out) : st;
}
