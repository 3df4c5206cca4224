/*
 * Arrays that features read are found as a tensor's rows are: a memory of rows at strides, so that what
 * shares bytes with an output is refused by the same arithmetic.
 */
#include "runtime/ops/features.h"

#include "runtime/base/status.h"

/* Terms of scores are divided by the scale, and the quotient is to be a number. */
#define SCALE_LEAST 1e-30

bool fa2i_features_asked(const fa2_problem *problem)
{
    return problem->alibi || problem->sinks || problem->seqused;
}

static bool has_terms(const fa2_problem *problem)
{
    return problem->alibi != 0;
}

static fa2_status check_scale(double scale)
{
    if (scale >= SCALE_LEAST)
        return FA2_OK;
    return fa2i_fail(
        FA2_E_INVALID,
        "the scale of scores is %g; it must be at least %g where something is added to "
        "them",
        scale, SCALE_LEAST);
}

static fa2_status check_given(const char *name, const void *data, const char *field)
{
    if (data != NULL)
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "%s is NULL, but problem.%s is 1", name, field);
}

/* [batch, heads_q] */
static fa2_status locate_slopes(const fa2_problem *p, const fa2_alibi *alibi, fa2i_memory *m)
{
    const char *name = "alibi.slopes";
    const int64_t row = (int64_t)p->heads_q * (int64_t)sizeof *alibi->slopes;
    int64_t reach = 0;
    fa2_status st = FA2_OK;
    FA2_TRY(check_given(name, alibi->slopes, "alibi"));
    if (p->batch > 1 &&
        (alibi->stride_batch < 0 ||
         __builtin_mul_overflow(alibi->stride_batch, 4 * (int64_t)(p->batch - 1), &reach) ||
         reach >= FA2I_ADDRESS_END))
        FA2_TRY(
            fa2i_fail(FA2_E_INVALID,
                      "alibi.stride_batch is %lld; with a batch of %d it must be from 0 to %lld",
                      (long long)alibi->stride_batch, (int)p->batch,
                      (long long)(FA2I_ADDRESS_END / 4 / (p->batch - 1))));
    FA2_TRY(fa2i_memory_of_array(name, alibi->slopes, (size_t)(row + reach), sizeof(float), m));
    m->row_bytes = row;
    m->strides[0] = p->batch > 1 ? 4 * alibi->stride_batch : 0;
    m->extents[0] = p->batch;
done:
    return st;
}

static fa2_status locate_sinks(const fa2_problem *p, const float *sinks, fa2i_memory *m)
{
    const fa2_status st = check_given("sinks", sinks, "sinks");
    if (st != FA2_OK)
        return st;
    return fa2i_memory_of_array("sinks", sinks, (size_t)p->heads_q * sizeof *sinks, sizeof *sinks,
                                m);
}

static fa2_status locate_lengths(const fa2_problem *p, const int32_t *lengths, fa2i_memory *m)
{
    const fa2_status st = check_given("seqused_k", lengths, "seqused");
    if (st != FA2_OK)
        return st;
    return fa2i_memory_of_array("seqused_k", lengths, (size_t)p->batch * sizeof *lengths,
                                sizeof *lengths, m);
}

static fa2_status check_apart(const fa2i_memory *input, const fa2i_memory *const *outputs,
                              int output_count)
{
    fa2_status st = FA2_OK;
    for (int i = 0; i < output_count; i++)
        FA2_TRY(fa2i_memory_check_apart(outputs[i], input));
done:
    return st;
}

fa2_status fa2i_features_check(const fa2_problem *problem, const fa2i_feature_args *args,
                               double scale, const fa2i_memory *const *outputs, int output_count)
{
    fa2i_memory m;
    fa2_status st = FA2_OK;
    if (has_terms(problem))
        FA2_TRY(check_scale(scale));
    if (problem->alibi) {
        FA2_TRY(locate_slopes(problem, args->alibi, &m));
        FA2_TRY(check_apart(&m, outputs, output_count));
    }
    if (problem->sinks) {
        FA2_TRY(locate_sinks(problem, *args->sinks, &m));
        FA2_TRY(check_apart(&m, outputs, output_count));
    }
    if (problem->seqused) {
        FA2_TRY(locate_lengths(problem, *args->seqused_k, &m));
        FA2_TRY(check_apart(&m, outputs, output_count));
    }
done:
    return st;
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
    if (problem->seqused)
        params.seqused_k = (uintptr_t)*args->seqused_k;
    *ret_params = params;
}
