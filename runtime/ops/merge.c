/*
 * A partial result is a tensor like O in fp32, and all of them are one tensor with one more dimension. The check of two
 * arguments knows three dimensions (memory.h). So if there are several partial results, everything from the first byte
 * of the first one to the last byte of the last one counts as theirs.
 */
#include "runtime/ops/merge.h"

#include <stddef.h>
#include "runtime/base/status.h"
#include "runtime/ops/call.h"
#include "runtime/ops/memory.h"

_Static_assert(offsetof(fa2i_merge_params, part_step) == 80 && sizeof(fa2i_merge_params) == 112,
               "kernels in databases read their parameters at these places");

static int64_t all_rows(const fa2_problem *p)
{
    return (int64_t)p->batch * p->heads_q * p->seq_q;
}

/* ---- the check ---- */

typedef struct operands {
    fa2i_memory parts, part_lse, o, lse;
} operands;

/* Checks the distance of partial results, which counts if there are several. */
static fa2_status check_step(const char *name, int64_t step, int64_t multiple, int64_t elem_bytes, int32_t count)
{
    const int64_t most = count > 1 ? FA2I_ADDRESS_END / 4 / elem_bytes / (count - 1) : INT64_MAX;
    if (count == 1 || (step >= 0 && step <= most && step % multiple == 0))
        return FA2_OK;
    return fa2i_fail(FA2_E_INVALID, "%s is %lld; with %d partial results it must be a multiple of %lld from 0 to %lld",
                     name, (long long)step, (int)count, (long long)multiple, (long long)(most / multiple * multiple));
}

/* Makes the memory of one partial result that of all: no byte of them lies outside of it. */
static void extend(fa2i_memory *m, int64_t step_bytes, int32_t count)
{
    if (count == 1)
        return;
    const int64_t end = m->end + step_bytes * (count - 1);
    *m = (fa2i_memory){.name = m->name, .begin = m->begin, .end = end, .row_bytes = end - m->begin};
    for (int i = 0; i < 3; i++)
        m->extents[i] = 1;
}

static fa2_status locate(const fa2_problem *p, const fa2_merge_args *args, operands *m)
{
    const int32_t extents[] = {p->batch, p->seq_q, p->heads_q}, count = p->seq_k;
    const int64_t elem_bytes = sizeof(float);
    const size_t rows_bytes = (size_t)all_rows(p) * sizeof(float);
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_memory_of_rows("parts", &args->parts, extents, p->head_dim, sizeof(float), NULL, &m->parts));
    FA2_TRY(check_step("parts_stride", args->parts_stride, 4, elem_bytes, count));
    if (args->parts_lse == NULL)
        FA2_TRY(fa2i_fail(FA2_E_INVALID, "parts_lse is NULL; the LSE of partial results are their weights"));
    FA2_TRY(fa2i_memory_of_array("parts_lse", args->parts_lse, rows_bytes, sizeof(float), &m->part_lse));
    FA2_TRY(check_step("parts_lse_stride", args->parts_lse_stride, 1, elem_bytes, count));
    FA2_TRY(fa2i_memory_of_rows("o", &args->o, extents, p->head_dim, fa2i_out_bytes(p), "merge", &m->o));
    if (args->lse != NULL)
        FA2_TRY(fa2i_memory_of_array("lse", args->lse, rows_bytes, sizeof(float), &m->lse));
    extend(&m->parts, args->parts_stride * elem_bytes, count);
    extend(&m->part_lse, args->parts_lse_stride * elem_bytes, count);
done:
    return st;
}

fa2_status fa2i_merge_check_args(const fa2_problem *problem, const void *args, const fa2i_grid *grid)
{
    const fa2_merge_args *a = args;
    operands m = {0}; /* zeroed memory shares no byte with anything */
    fa2_status st = FA2_OK;
    (void)grid; /* no kernel needs a workspace */
    FA2_TRY(locate(problem, a, &m));
    const fa2i_memory *const outputs[] = {&m.o, &m.lse}, *const inputs[] = {&m.parts, &m.part_lse};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            FA2_TRY(fa2i_memory_check_apart(outputs[i], inputs[j]));
    FA2_TRY(fa2i_memory_check_apart(&m.lse, &m.o));
    FA2_TRY(fa2i_workspace_check(a->workspace, a->workspace_bytes));
done:
    return st;
}

/* ---- the launch ---- */

fa2_status fa2i_merge_grid(const fa2i_card *card, const fa2i_recipe *recipe, const fa2_problem *problem,
                           fa2i_grid *ret_grid)
{
    fa2i_grid grid = {0};
    (void)card; /* the work is not divided by SMs */
    for (int i = 0; i < recipe->step_count; i++) {
        const int64_t rows = recipe->steps[i].block_rows, blocks = (all_rows(problem) + rows - 1) / rows;
        if (blocks > INT32_MAX)
            return fa2i_fail(FA2_E_UNSUPPORTED, "%lld blocks of %lld rows are more than one launch can have (%d)",
                             (long long)blocks, (long long)rows, (int)INT32_MAX);
        grid.blocks[i] = (unsigned)blocks;
    }
    const fa2_status st = fa2i_clusters_check(recipe, grid.blocks);
    if (st == FA2_OK)
        *ret_grid = grid;
    return st;
}

void fa2i_merge_fill(const fa2i_grid *grid, const fa2_problem *problem, const void *args, fa2i_merge_params *ret_params)
{
    const fa2_merge_args *a = args;
    (void)grid;
    fa2i_merge_params params = {
        .parts = (uintptr_t)a->parts.data,
        .part_lse = (uintptr_t)a->parts_lse,
        .o = (uintptr_t)a->o.data,
        .lse = (uintptr_t)a->lse,
        .part_step = a->parts_stride,
        .part_lse_step = a->parts_lse_stride,
        .count = problem->seq_k,
        .batch = problem->batch,
        .seq = problem->seq_q,
        .heads = problem->heads_q,
    };
    fa2i_param_strides(&a->parts, params.part_stride);
    fa2i_param_strides(&a->o, params.o_stride);
    *ret_params = params;
}

/* ---- work ---- */

double fa2i_merge_flop(const fa2_problem *problem)
{
    return 2.0 * (double)all_rows(problem) * problem->seq_k * problem->head_dim;
}

double fa2i_merge_bytes(const fa2_problem *problem)
{
    const double row = (double)sizeof(float) * (problem->head_dim + 1.0) * problem->seq_k + sizeof(float) +
                       (double)fa2i_out_bytes(problem) * problem->head_dim;
    return row * (double)all_rows(problem);
}
