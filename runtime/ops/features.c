/*
 * Arrays that features read are found as a tensor's rows are: a memory of rows at strides, so that what
 * shares bytes with an output is refused by the same arithmetic.
 */
#include "runtime/ops/features.h"

#include "runtime/base/status.h"
#include "runtime/ops/forward.h"

/* Terms of scores are divided by the scale, and the quotient is to be a number. */
#define SCALE_LEAST 1e-30

bool fa2i_features_asked(const fa2_problem *problem)
{
    return problem->alibi || problem->sinks || problem->seqused || problem->varlen ||
           problem->paged;
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

/* An array of int32. */
static fa2_status locate_numbers(const char *name, const int32_t *numbers, size_t count,
                                 const char *field, fa2i_memory *m)
{
    const fa2_status st = check_given(name, numbers, field);
    return st != FA2_OK
               ? st
               : fa2i_memory_of_array(name, numbers, count * sizeof *numbers, sizeof *numbers, m);
}

/* [batch, pages of a sequence] */
static fa2_status locate_table(const fa2_problem *p, const fa2i_feature_args *args, fa2i_memory *m)
{
    const int64_t columns = ((int64_t)p->seq_k + fa2i_forward_page(p) - 1) / fa2i_forward_page(p);
    const int64_t stride = *args->block_table_stride;
    const int64_t most = FA2I_ADDRESS_END / 8 / p->batch;
    if (*args->page_count < 1)
        return fa2i_fail(FA2_E_INVALID, "page_count is %d; it must be at least 1",
                         (int)*args->page_count);
    if (p->batch > 1 && (stride < 0 || stride > most))
        return fa2i_fail(FA2_E_INVALID,
                         "block_table_stride is %lld; with a batch of %d it must be from 0 to %lld",
                         (long long)stride, (int)p->batch, (long long)most);
    const int64_t rows = p->batch > 1 ? stride * (p->batch - 1) : 0;
    return locate_numbers("block_table", *args->block_table, (size_t)(rows + columns), "paged", m);
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
    const size_t batch = (size_t)problem->batch;
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
        FA2_TRY(locate_numbers("seqused_k", *args->seqused_k, batch, "seqused", &m));
        FA2_TRY(check_apart(&m, outputs, output_count));
    }
    if (problem->varlen) {
        FA2_TRY(locate_numbers("cu_seqlens_q", *args->cu_seqlens_q, batch + 1, "varlen", &m));
        FA2_TRY(check_apart(&m, outputs, output_count));
        FA2_TRY(locate_numbers("cu_seqlens_k", *args->cu_seqlens_k, batch + 1, "varlen", &m));
        FA2_TRY(check_apart(&m, outputs, output_count));
    }
    if (problem->paged) {
        FA2_TRY(locate_table(problem, args, &m));
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
    if (problem->varlen) {
        params.cu_seqlens_q = (uintptr_t)*args->cu_seqlens_q;
        params.cu_seqlens_k = (uintptr_t)*args->cu_seqlens_k;
    }
    if (problem->paged) {
        params.block_table = (uintptr_t)*args->block_table;
        params.table_stride = problem->batch > 1 ? *args->block_table_stride : 0;
        params.pages = *args->page_count;
        while (1 << params.page_shift < fa2i_forward_page(problem))
            params.page_shift++;
    }
    *ret_params = params;
}
