/*
 * Features that say which queries and keys exist and where they lie: lengths, pages, padding, cache rows, new keys, and
 * their rotation.
 */
#include "runtime/ops/features_rows.h"

#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/ops/forward.h"

/* Locates an array of int32. */
static fa2_status locate_numbers(const char *name, const int32_t *numbers, size_t count, int field,
                                 fa2i_memory *m)
{
    const fa2_status st = fa2i_feature_check_given(name, numbers, field, 1);
    return st != FA2_OK
               ? st
               : fa2i_memory_of_array(name, numbers, count * sizeof *numbers, sizeof *numbers, m);
}

/* Locates the block table, [batch, pages of a sequence]. */
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
    return locate_numbers("block_table", *args->block_table, (size_t)(rows + columns),
                          FA2I_FIELD_paged, m);
}

/* Expresses the strides of pages and rows in their greatest common divisor. Returns whether 32 bits hold these steps
 * and can count to the last row. The tensor's strides were checked. */
static bool count_steps(const fa2_problem *p, const fa2_tensor *tensor, int32_t pages,
                        uint32_t ret_steps[3])
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
    ret_steps[2] = (uint32_t)(elems * 2);
    return elems * 2 <= UINT32_MAX && (page * last_page + row * last_row) / elems <= UINT32_MAX;
}

static fa2_status check_steps(const fa2_problem *p, const char *name, const fa2_tensor *tensor,
                              int32_t pages)
{
    uint32_t steps[3];
    if (count_steps(p, tensor, pages, steps))
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID,
                     "%s.stride_batch and %s.stride_seq are %lld and %lld: their greatest common divisor "
                     "must be less than 2^31, and the last row of %d pages of %d must lie less than 2^32 "
                     "times the divisor from the first; make the stride of pages a multiple of the stride "
                     "of rows",
                     name, name, (long long)tensor->stride_batch, (long long)tensor->stride_seq,
                     (int)pages, (int)fa2i_forward_page(p));
}

static fa2_status locate_cache_rows(const fa2_problem *p, const fa2i_feature_args *args,
                                    fa2i_memory *m)
{
    if (*args->cache_row_count < 1)
        return fa2i_fail(FA2_E_INVALID, "cache_row_count is %d; it must be at least 1",
                         (int)*args->cache_row_count);
    return locate_numbers("cache_rows", *args->cache_rows, (size_t)p->batch, FA2I_FIELD_cache_rows,
                          m);
}

/* Locates new keys or values, [batch, seq, heads_kv, head_dim], or packed like Q. */
static fa2_status locate_new(const fa2_problem *p, const char *name, const fa2_tensor *tensor,
                             int32_t seq, int32_t columns, fa2i_memory *m)
{
    const int32_t extents[] = {p->varlen ? 1 : p->batch, p->varlen ? fa2i_forward_total_q(p) : seq,
                               p->heads_kv};
    return fa2i_memory_of_tensor(name, tensor, extents, columns, NULL, m);
}

/* Locates cosines or sines, [rows, rotary_dim / 2]. */
static fa2_status locate_angles(const fa2_problem *p, const char *name, const void *data,
                                int32_t rows, fa2i_memory *m)
{
    enum { ALIGN_BYTES = 16 };
    const fa2_status st =
        fa2i_feature_check_given(name, data, FA2I_FIELD_rotary, (int32_t)p->rotary);
    return st != FA2_OK ? st
                        : fa2i_memory_of_array(name, data, (size_t)rows * (size_t)p->rotary_dim,
                                               ALIGN_BYTES, m);
}

/* The append step counts rows in 32 bits, unless they are packed. */
#define ROWS_MAX ((int64_t)UINT32_MAX)

static fa2_status check_new_count(const fa2_problem *p, const fa2_append *append)
{
    if (append->seq < 1 || append->seq > p->seq_k)
        return fa2i_fail(FA2_E_INVALID, "append.seq is %d; it must be from 1 to seq_k (%d)",
                         (int)append->seq, (int)p->seq_k);
    const int64_t heads = p->rotary != FA2_ROTARY_NONE ? p->heads_q : 0;
    const int64_t batch = p->batch, new_rows = batch * append->seq; /* < 2^60 */
    const int64_t of_row = (p->v_in_k ? 1 : 2) * p->heads_kv;
    if (new_rows > ROWS_MAX / of_row ||
        (heads > 0 && batch * p->seq_q > (ROWS_MAX - new_rows * of_row) / heads))
        return fa2i_fail(
            FA2_E_INVALID,
            "append.seq is %d; with %d batches of %d heads and %lld x %d rotated rows of "
            "Q there would be more than %lld rows to write",
            (int)append->seq, (int)p->batch, (int)p->heads_kv, (long long)heads, (int)p->seq_q,
            (long long)ROWS_MAX);
    return FA2_OK;
}

static fa2_status check_append(const fa2_problem *p, const fa2_append *append,
                               const fa2i_memory *const *outputs, int output_count)
{
    fa2i_memory m;
    fa2_status st = FA2_OK;
    if (!p->varlen)
        FA2_TRY(check_new_count(p, append));
    FA2_TRY(locate_new(p, "append.k", &append->k, append->seq, p->head_dim, &m));
    FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
    if (p->v_in_k)
        goto done;
    FA2_TRY(locate_new(p, "append.v", &append->v, append->seq, fa2i_head_dim_v(p), &m));
    FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
done:
    return st;
}

static fa2_status check_rotary(const fa2_problem *p, const fa2_rotary_tables *tables,
                               const fa2i_memory *const *outputs, int output_count)
{
    fa2i_memory m;
    fa2_status st = FA2_OK;
    if (tables->rows < p->seq_k)
        return fa2i_fail(FA2_E_INVALID, "rotary.rows is %d; it must be at least seq_k (%d)",
                         (int)tables->rows, (int)p->seq_k);
    FA2_TRY(locate_angles(p, "rotary.cos", tables->cos, tables->rows, &m));
    FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
    FA2_TRY(locate_angles(p, "rotary.sin", tables->sin, tables->rows, &m));
    FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
done:
    return st;
}

fa2_status fa2i_feature_rows_check(const fa2_problem *problem, const fa2i_feature_args *args,
                                   const fa2i_memory *const *outputs, int output_count)
{
    const size_t batch = (size_t)problem->batch;
    fa2i_memory m;
    fa2_status st = FA2_OK;
    if (problem->seqused) {
        FA2_TRY(locate_numbers("seqused_k", *args->seqused_k, batch, FA2I_FIELD_seqused, &m));
        FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
    }
    if (problem->varlen) {
        FA2_TRY(
            locate_numbers("cu_seqlens_q", *args->cu_seqlens_q, batch + 1, FA2I_FIELD_varlen, &m));
        FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
        FA2_TRY(
            locate_numbers("cu_seqlens_k", *args->cu_seqlens_k, batch + 1, FA2I_FIELD_varlen, &m));
        FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
    }
    if (problem->paged) {
        FA2_TRY(locate_table(problem, args, &m));
        FA2_TRY(check_steps(problem, "k", args->k, *args->page_count));
        if (!problem->v_in_k)
            FA2_TRY(check_steps(problem, "v", args->v, *args->page_count));
        FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
    }
    if (problem->leftpad) {
        FA2_TRY(locate_numbers("leftpad", *args->leftpad, batch, FA2I_FIELD_leftpad, &m));
        FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
    }
    if (problem->cache_rows) {
        FA2_TRY(locate_cache_rows(problem, args, &m));
        FA2_TRY(fa2i_feature_check_apart(&m, outputs, output_count));
    }
    if (problem->append)
        FA2_TRY(check_append(problem, args->append, outputs, output_count));
    if (problem->rotary != FA2_ROTARY_NONE)
        FA2_TRY(check_rotary(problem, args->rotary, outputs, output_count));
done:
    return st;
}

void fa2i_feature_rows_fill(const fa2_problem *problem, const fa2i_feature_args *args,
                            fa2i_feature_params *params)
{
    if (problem->seqused)
        params->seqused_k = (uintptr_t)*args->seqused_k;
    if (problem->varlen) {
        params->cu_seqlens_q = (uintptr_t)*args->cu_seqlens_q;
        params->cu_seqlens_k = (uintptr_t)*args->cu_seqlens_k;
        params->total_q = fa2i_forward_total_q(problem);
        params->total_k = fa2i_forward_total_k(problem);
    }
    if (problem->paged) {
        params->block_table = (uintptr_t)*args->block_table;
        params->table_stride = problem->batch > 1 ? *args->block_table_stride : 0;
        params->pages = *args->page_count;
        while (1 << params->page_shift < fa2i_forward_page(problem))
            params->page_shift++;
        count_steps(problem, args->k, params->pages, params->k_steps);
        count_steps(problem, problem->v_in_k ? args->k : args->v, params->pages, params->v_steps);
    }
    if (problem->leftpad)
        params->leftpad = (uintptr_t)*args->leftpad;
    if (problem->cache_rows) {
        params->cache_rows = (uintptr_t)*args->cache_rows;
        params->cache_row_count = *args->cache_row_count;
    }
    if (problem->append) {
        params->new_count = problem->varlen ? 0 : args->append->seq; /* as many as queries */
        params->new_k = (uintptr_t)args->append->k.data;
        fa2i_param_strides(&args->append->k, params->new_k_stride);
        if (!problem->v_in_k) {
            params->new_v = (uintptr_t)args->append->v.data;
            fa2i_param_strides(&args->append->v, params->new_v_stride);
        }
    }
    if (problem->rotary != FA2_ROTARY_NONE) {
        params->rotary_cos = (uintptr_t)args->rotary->cos;
        params->rotary_sin = (uintptr_t)args->rotary->sin;
        params->rotary_rows = args->rotary->rows;
    }
}
