/*
 * Checks and fills the features that act on scores and on P. features_rows.c has the features that say where rows lie.
 * Arrays of features are located like tensors: as rows at strides. So the same arithmetic refuses arrays that share
 * bytes with an output.
 */
#include "runtime/ops/features.h"

#include <math.h>
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/ops/dropout.h"
#include "runtime/ops/features_rows.h"

/* Terms that are added to scores are divided by the scale, and the quotient must be a number. */
#define SCALE_LEAST 1e-30

bool fa2i_features_asked(const fa2_problem *problem)
{
    return problem->alibi || problem->sinks || problem->bias != FA2_BIAS_NONE || problem->dropout ||
           problem->seqused || problem->varlen || problem->paged || problem->leftpad ||
           problem->cache_rows || problem->append;
}

static bool has_terms(const fa2_problem *problem)
{
    return problem->alibi || problem->bias != FA2_BIAS_NONE;
}

static fa2_status check_scale(double scale)
{
    if (scale >= SCALE_LEAST)
        return FA2_OK;
    return fa2i_fail(
        FA2_E_INVALID,
        "the scale of scores is %g; it must be at least %g if something is added to "
        "them",
        scale, SCALE_LEAST);
}

fa2_status fa2i_feature_check_given(const char *name, const void *data, int field, int32_t asked)
{
    const char *word = fa2i_field_word(field, asked);
    if (data != NULL)
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "%s is NULL, but problem.%s is %s", name,
                     fa2i_fields[field].name, word != NULL ? word : "1");
}

fa2_status fa2i_feature_check_apart(const fa2i_memory *input, const fa2i_memory *const *outputs,
                                    int output_count)
{
    fa2_status st = FA2_OK;
    for (int i = 0; i < output_count; i++)
        FA2_TRY(fa2i_memory_check_apart(outputs[i], input));
done:
    return st;
}

/* Computes the bytes from the first to the last element of a dimension. If its extent is 1, the stride may be
 * anything. */
static fa2_status find_reach(const char *name, int64_t stride, int32_t extent, size_t elem_bytes,
                             int64_t *ret_reach)
{
    const int64_t most =
        extent > 1 ? FA2I_ADDRESS_END / 8 / (int64_t)elem_bytes / (extent - 1) : INT64_MAX;
    *ret_reach = 0;
    if (extent > 1 && (stride < 0 || stride > most))
        return fa2i_fail(FA2_E_INVALID,
                         "%s is %lld; with an extent of %d it must be from 0 to %lld", name,
                         (long long)stride, (int)extent, (long long)most);
    if (extent > 1)
        *ret_reach = stride * (int64_t)elem_bytes * (extent - 1);
    return FA2_OK;
}

/* Locates the slopes, [batch, heads_q]. */
static fa2_status locate_slopes(const fa2_problem *p, const fa2_alibi *alibi, fa2i_memory *m)
{
    const char *name = "alibi.slopes";
    const int64_t row = (int64_t)p->heads_q * (int64_t)sizeof *alibi->slopes;
    int64_t reach;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_feature_check_given(name, alibi->slopes, FA2I_FIELD_alibi, p->alibi));
    FA2_TRY(find_reach("alibi.stride_batch", alibi->stride_batch, p->batch, sizeof(float), &reach));
    FA2_TRY(fa2i_memory_of_array(name, alibi->slopes, (size_t)(row + reach), sizeof(float), m));
    m->row_bytes = row;
    m->strides[0] = p->batch > 1 ? (int64_t)sizeof *alibi->slopes * alibi->stride_batch : 0;
    m->extents[0] = p->batch;
done:
    return st;
}

static fa2_status locate_sinks(const fa2_problem *p, const float *sinks, fa2i_memory *m)
{
    const fa2_status st = fa2i_feature_check_given("sinks", sinks, FA2I_FIELD_sinks, p->sinks);
    if (st != FA2_OK)
        return st;
    return fa2i_memory_of_array("sinks", sinks, (size_t)p->heads_q * sizeof *sinks, sizeof *sinks,
                                m);
}

static size_t bias_elem_bytes(const fa2_problem *problem)
{
    static const size_t bytes[] = {
        [FA2_BIAS_FP16] = 2, [FA2_BIAS_BF16] = 2, [FA2_BIAS_FP32] = 4, [FA2_BIAS_BOOL] = 1};
    return bytes[fa2i_bias_type(problem->bias)];
}

/* A matrix of numbers for each query and key of each head. */
typedef struct plane {
    const char *name, *data_name, *names[4]; /* names of the strides: batch, query, head, key */
    const void *data;
    int64_t strides[4];
    size_t elem_bytes;
} plane;

/* Locates a plane. The keys of a query are its row. If keys are not contiguous, the bytes between them count, too. */
static fa2_status locate_plane(const fa2_problem *p, const plane *of, fa2i_memory *m)
{
    const int32_t extents[] = {p->batch, p->seq_q, p->heads_q, p->seq_k};
    const int64_t elem_bytes = (int64_t)of->elem_bytes;
    int64_t reaches[4], end = elem_bytes;
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_feature_check_given(of->data_name, of->data, FA2I_FIELD_bias, (int32_t)p->bias));
    for (int i = 0; i < 4; i++) {
        FA2_TRY(find_reach(of->names[i], of->strides[i], extents[i], of->elem_bytes, &reaches[i]));
        end += reaches[i];
    }
    FA2_TRY(fa2i_memory_of_array(of->data_name, of->data, (size_t)end, of->elem_bytes, m));
    m->name = of->name;
    m->row_bytes = reaches[3] + elem_bytes;
    for (int i = 0; i < 3; i++) {
        m->extents[i] = extents[i];
        m->strides[i] = extents[i] > 1 ? of->strides[i] * elem_bytes : 0;
    }
done:
    return st;
}

static fa2_status locate_bias(const fa2_problem *p, const fa2_bias_tensor *bias, fa2i_memory *m)
{
    const plane of = {
        .name = "bias",
        .data_name = "bias.data",
        .names = {"bias.stride_batch", "bias.stride_query", "bias.stride_head", "bias.stride_key"},
        .data = bias->data,
        .strides = {bias->stride_batch, bias->stride_query, bias->stride_head, bias->stride_key},
        .elem_bytes = bias_elem_bytes(p)};
    return locate_plane(p, &of, m);
}

/* A stride of 0 asks for a sum over the dimension. Elements that share memory in another way are refused. Usual strides
 * nest, which is seen at once. The search for other strides ends soon (ops/memory.c). */
static fa2_status check_elements(const plane *of, const int32_t extents[4])
{
    const int64_t *strides = of->strides;
    int64_t bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = extents[i] > 1 ? strides[i] * (int64_t)of->elem_bytes : 0;
    if (!fa2i_memory_elements_meet(bytes, extents, (int64_t)of->elem_bytes))
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID,
                     "%s, %s, %s and %s are %lld, %lld, %lld and %lld; some of its %d x %d x %d x "
                     "%d elements would "
                     "share memory: only a stride of 0 makes a sum",
                     of->names[0], of->names[2], of->names[1], of->names[3], (long long)strides[0],
                     (long long)strides[2], (long long)strides[1], (long long)strides[3],
                     (int)extents[0], (int)extents[2], (int)extents[1], (int)extents[3]);
}

fa2_status fa2i_bias_gradient_locate(const fa2_problem *p, const fa2_bias_gradient *dbias,
                                     fa2i_memory *m)
{
    const plane of = {.name = "dbias",
                      .data_name = "dbias.data",
                      .names = {"dbias.stride_batch", "dbias.stride_query", "dbias.stride_head",
                                "dbias.stride_key"},
                      .data = dbias->data,
                      .strides = {dbias->stride_batch, dbias->stride_query, dbias->stride_head,
                                  dbias->stride_key},
                      .elem_bytes = sizeof *dbias->data};
    const int32_t extents[] = {p->batch, p->seq_q, p->heads_q, p->seq_k};
    const fa2_status st = locate_plane(p, &of, m);
    for (int i = 0; st == FA2_OK && p->deterministic && i < 4; i++) {
        if (of.strides[i] == 0 && extents[i] > 1)
            return fa2i_fail(FA2_E_UNSUPPORTED,
                             "%s is 0, a sum over %d in any order; with deterministic it must be "
                             "more than 0, and the caller must sum",
                             of.names[i], (int)extents[i]);
    }
    return st != FA2_OK ? st : check_elements(&of, extents);
}

/* Returns whether each row consists of aligned groups of so many neighbours. The stride of an extent of 1 may be
 * anything. */
static bool are_side(const fa2_problem *p, const fa2_bias_tensor *bias, int neighbours)
{
    const size_t align = (size_t)neighbours * bias_elem_bytes(p);
    return (p->seq_k == 1 || bias->stride_key == 1) &&
           (p->batch == 1 || bias->stride_batch % neighbours == 0) &&
           (p->heads_q == 1 || bias->stride_head % neighbours == 0) &&
           (p->seq_q == 1 || bias->stride_query % neighbours == 0) &&
           (uintptr_t)bias->data % (align < 16 ? align : 16) == 0;
}

bool fa2i_bias_is_scattered(const fa2_problem *problem, const fa2_bias_tensor *bias)
{
    return (problem->bias == FA2_BIAS_FP16 || problem->bias == FA2_BIAS_BF16) &&
           !are_side(problem, bias, 2);
}

static fa2_status locate_number(const char *name, const uint64_t *at, fa2i_memory *m)
{
    return fa2i_memory_of_array(name, at, at != NULL ? sizeof *at : 0, sizeof *at, m);
}

fa2_status fa2i_dropout_check(const fa2_dropout *dropout)
{
    fa2i_memory ignored;
    fa2_status st = FA2_OK;
    if (!(dropout->p >= 0 && dropout->p < 1)) /* true for NaN, too */
        return fa2i_fail(FA2_E_INVALID, "dropout.p is %g; it must be at least 0 and less than 1",
                         (double)dropout->p);
    FA2_TRY(locate_number("dropout.seed_at", dropout->seed_at, &ignored));
    FA2_TRY(locate_number("dropout.offset_at", dropout->offset_at, &ignored));
done:
    return st;
}

/* Checks the features that act on scores and on P. */
static fa2_status check_of_scores(const fa2_problem *problem, const fa2i_feature_args *args,
                                  const fa2i_memory *const *outputs, int output_count)
{
    fa2i_memory m;
    fa2_status st = FA2_OK;
    if (problem->alibi) {
        FA2_TRY(locate_slopes(problem, args->alibi, &m));
        FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
    }
    if (problem->sinks) {
        FA2_TRY(locate_sinks(problem, *args->sinks, &m));
        FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
    }
    if (problem->bias != FA2_BIAS_NONE) {
        FA2_TRY(locate_bias(problem, args->bias, &m));
        FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
    }
    if (problem->dropout) {
        FA2_TRY(fa2i_dropout_check(args->dropout));
        FA2_TRY(locate_number("dropout.seed_at", args->dropout->seed_at, &m));
        FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
        FA2_TRY(locate_number("dropout.offset_at", args->dropout->offset_at, &m));
        FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
    }
done:
    return st;
}

fa2_status fa2i_features_check(const fa2_problem *problem, const fa2i_feature_args *args,
                               double scale, const fa2i_memory *const *outputs, int output_count)
{
    fa2_status st = FA2_OK;
    if (has_terms(problem))
        FA2_TRY(check_scale(scale));
    FA2_TRY(check_of_scores(problem, args, outputs, output_count));
    FA2_TRY(fa2i_feature_rows_check(problem, args, outputs, output_count));
done:
    return st;
}

static void fill_dropout(const fa2_dropout *dropout, fa2i_feature_params *params)
{
    const fa2i_dropout_threshold threshold = fa2i_dropout_threshold_of(dropout->p);
    params->seed = (int64_t)dropout->seed;
    params->offset = (int64_t)dropout->offset;
    params->seed_at = (uintptr_t)dropout->seed_at;
    params->offset_at = (uintptr_t)dropout->offset_at;
    params->drop_bound = (int32_t)fa2i_dropout_bound(threshold.byte);
    params->drop_part = (int32_t)threshold.part;
    params->keep_scale = fa2i_dropout_scale(dropout->p);
}

static void fill_bias(const fa2_problem *p, const fa2_bias_tensor *bias,
                      fa2i_feature_params *params)
{
    params->bias = (uintptr_t)bias->data;
    params->bias_side = are_side(p, bias, 8) ? 8 : are_side(p, bias, 2) ? 2 : 1;
    params->bias_batch = p->batch > 1 ? bias->stride_batch : 0;
    params->bias_head = p->heads_q > 1 ? bias->stride_head : 0;
    params->bias_query = p->seq_q > 1 ? bias->stride_query : 0;
    params->bias_key = p->seq_k > 1 ? bias->stride_key : 0;
}

void fa2i_bias_gradient_fill(const fa2_problem *p, const fa2_bias_gradient *dbias,
                             fa2i_feature_params *params)
{
    params->dbias = (uintptr_t)dbias->data;
    params->dbias_batch = p->batch > 1 ? dbias->stride_batch : 0;
    params->dbias_head = p->heads_q > 1 ? dbias->stride_head : 0;
    params->dbias_query = p->seq_q > 1 ? dbias->stride_query : 0;
    params->dbias_key = p->seq_k > 1 ? dbias->stride_key : 0;
}

/* Rounds to so many significant bits. */
static double rounded_to(int bits, double x)
{
    int exponent;
    const double fraction = frexp(x, &exponent);
    return ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits);
}

double fa2i_features_scale(const fa2_problem *problem, double scale)
{
    enum { BF16_BITS = 8 };
    if (fa2i_bias_type(problem->bias) != FA2_BIAS_BF16 ||
        problem->softcap) /* with a softcap the bias is not added by products */
        return scale;
    const double most = rounded_to(BF16_BITS, 1 / scale);
    return 1 / (most + rounded_to(BF16_BITS, 1 / scale - most));
}

void fa2i_features_fill(const fa2_problem *problem, const fa2i_feature_args *args, double scale,
                        fa2i_feature_params *ret_params)
{
    fa2i_feature_params params = {0};
    if (has_terms(problem))
        params.inverse_scale = (float)(1 / scale);
    if (problem->alibi) {
        params.alibi_slopes = (uintptr_t)args->alibi->slopes;
        params.alibi_stride = problem->batch > 1 ? args->alibi->stride_batch : 0;
    }
    if (problem->sinks)
        params.sinks = (uintptr_t)*args->sinks;
    if (problem->bias != FA2_BIAS_NONE)
        fill_bias(problem, args->bias, &params);
    if (problem->dropout)
        fill_dropout(args->dropout, &params);
    fa2i_feature_rows_fill(problem, args, &params);
    *ret_params = params;
}
