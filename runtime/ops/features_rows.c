/*
 * Features that say which queries and keys exist and where they lie: lengths, pages, padding, cache rows, new keys, and
 * their rotation.
 */
#include "runtime/ops/features_rows.h"

#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/ops/forward.h"

/* Expresses the strides of pages and rows in their greatest common divisor. Returns whether 32 bits hold these steps
 * and can count to the last row. The tensor's strides were checked. */
static bool count_steps(const fa2_problem *p, const fa2_tensor *tensor, int32_t pages, uint32_t ret_steps[3])
{
    const int32_t last_page = pages - 1, last_row = fa2i_forward_page(p) - 1;
    const int64_t page = last_page > 0 ? tensor->stride_batch : 0;
    const int64_t row = last_row > 0 ? tensor->stride_seq : 0;
    int64_t elems = page, rest = row;
    while (rest != 0) {
        const int64_t next = elems % rest;
        elems = rest;
        rest = next;
    }
    if (elems == 0)
        elems = 1; /* a single row */
    ret_steps[0] = (uint32_t)(page / elems);
    ret_steps[1] = (uint32_t)(row / elems);
    const int64_t bytes = elems * fa2i_key_bytes(p);
    ret_steps[2] = (uint32_t)bytes;
    return bytes <= UINT32_MAX && (page * last_page + row * last_row) / elems <= UINT32_MAX;
}

static fa2_status check_steps(const fa2_problem *p, const char *name, const fa2_tensor *tensor, int32_t pages)
{
    uint32_t steps[3];
    if (count_steps(p, tensor, pages, steps))
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID,
                     "%s.stride_batch and %s.stride_seq are %lld and %lld: their greatest common divisor "
                     "must be less than 2^31, and the last row of %d pages of %d must lie less than 2^32 "
                     "times the divisor from the first; make the stride of pages a multiple of the stride of rows",
                     name, name, (long long)tensor->stride_batch, (long long)tensor->stride_seq, (int)pages,
                     (int)fa2i_forward_page(p));
}

/* Checks a number of a call that must be at least so much. what: the same in words. */
static fa2_status check_least(const char *name, int32_t value, int32_t least, const char *what)
{
    if (value >= least)
        return FA2_OK;
    return what == NULL
               ? fa2i_fail(FA2_E_INVALID, "%s is %d; it must be at least %d", name, (int)value, (int)least)
               : fa2i_fail(FA2_E_INVALID, "%s is %d; it must be at least %s (%d)", name, (int)value, what, (int)least);
}

static fa2_status check_pages(const fa2_problem *p, const fa2_forward_args *args)
{
    fa2_status st = FA2_OK;
    FA2_TRY(check_least("page_count", args->page_count, 1, NULL));
    FA2_TRY(check_steps(p, "k", &args->k, args->page_count));
    if (!p->v_in_k)
        FA2_TRY(check_steps(p, "v", &args->v, args->page_count));
done:
    return st;
}

/* The append step counts rows in 32 bits, unless they are packed. */
#define ROWS_MAX ((int64_t)UINT32_MAX)

static fa2_status check_new_count(const fa2_problem *p, const fa2_append *append)
{
    if (append->seq < 1 || append->seq > p->seq_k)
        return fa2i_fail(FA2_E_INVALID, "append.seq is %d; it must be from 1 to seq_k (%d)", (int)append->seq,
                         (int)p->seq_k);
    const int64_t heads = p->rotary != FA2_ROTARY_NONE ? p->heads_q : 0;
    const int64_t batch = p->batch, new_rows = batch * append->seq; /* < 2^60 */
    const int64_t of_row = (p->v_in_k ? 1 : 2) * p->heads_kv;
    if (new_rows > ROWS_MAX / of_row || (heads > 0 && batch * p->seq_q > (ROWS_MAX - new_rows * of_row) / heads))
        return fa2i_fail(FA2_E_INVALID,
                         "append.seq is %d; with %d batches of %d heads and %lld x %d rotated rows of "
                         "Q there would be more than %lld rows to write",
                         (int)append->seq, (int)p->batch, (int)p->heads_kv, (long long)heads, (int)p->seq_q,
                         (long long)ROWS_MAX);
    return FA2_OK;
}

fa2_status fa2i_feature_rows_check(const fa2_problem *problem, const void *args, int operand)
{
    const fa2_forward_args *a = args; /* backward has none of these operands */
    switch (operand) {
    case FA2I_OPERAND_block_table:
        return check_pages(problem, a);
    case FA2I_OPERAND_cache_rows:
        return check_least("cache_row_count", a->cache_row_count, 1, NULL);
    case FA2I_OPERAND_new_k:
        return problem->varlen ? FA2_OK : check_new_count(problem, &a->append);
    case FA2I_OPERAND_rotary_cos:
        return check_least("rotary.rows", a->rotary.rows, problem->seq_k, "seq_k");
    default:
        return FA2_OK;
    }
}

static void fill_pages(const fa2_problem *problem, const fa2_forward_args *args, fa2i_feature_params *params)
{
    params->pages = args->page_count;
    while (1 << params->page_shift < fa2i_forward_page(problem))
        params->page_shift++;
    count_steps(problem, &args->k, params->pages, params->k_steps);
    count_steps(problem, problem->v_in_k ? &args->k : &args->v, params->pages, params->v_steps);
}

void fa2i_feature_rows_fill(const fa2_problem *problem, const void *args, fa2i_feature_params *params)
{
    const fa2_forward_args *a = args; /* only varlen is also a feature of backward */
    if (problem->varlen) {
        params->total_q = fa2i_forward_total_q(problem);
        params->total_k = fa2i_forward_total_k(problem);
    }
    if (problem->paged)
        fill_pages(problem, a, params);
    if (problem->cache_rows)
        params->cache_row_count = a->cache_row_count;
    if (problem->append) {
        params->new_count = problem->varlen ? 0 : a->append.seq; /* as many as queries */
        fa2i_param_strides(&a->append.k, params->new_k_stride);
        if (!problem->v_in_k)
            fa2i_param_strides(&a->append.v, params->new_v_stride);
    }
    if (problem->rotary != FA2_ROTARY_NONE)
        params->rotary_rows = a->rotary.rows;
}
