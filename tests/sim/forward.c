/*
 * Tensors, launch, judgement.
 *
 * Traffic is judged after the numbers: no bank conflict in any access to shared memory, and loads
 * that touch no sector more than their bytes fill.
 */
#include "forward.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"

enum { LSE = FA2I_OPERAND_O + 1, WORKSPACE, TENSORS }; /* behind Q, K, V, O */

typedef struct tensors {
    CUdeviceptr memory[TENSORS];
    size_t bytes[TENSORS];
    fa2_forward_args args;
} tensors;

/* Memory full of poison. */
static bool put_poison(tensors *t, int which, size_t bytes)
{
    t->bytes[which] = bytes;
    return cuMemAlloc(&t->memory[which], bytes) == CUDA_SUCCESS &&
           cuMemsetD32Async(t->memory[which], FA2I_POISON, bytes / 4, NULL) == CUDA_SUCCESS;
}

/* What is only written: LSE if the case wants it, the workspace of the splits if there are any. */
static bool put_rest(const fa2i_case *c, const fa2i_grid *grid, tensors *t)
{
    const fa2_problem *p = &c->problem;
    const size_t rows = (size_t)p->batch * (size_t)p->heads_q * (size_t)p->seq_q;
    if (c->want_lse && !put_poison(t, LSE, rows * sizeof(float)))
        return false;
    if (grid->workspace_bytes > 0 && !put_poison(t, WORKSPACE, grid->workspace_bytes))
        return false;
    t->args.lse = (float *)(uintptr_t)t->memory[LSE];
    t->args.workspace = (void *)(uintptr_t)t->memory[WORKSPACE];
    t->args.workspace_bytes = grid->workspace_bytes;
    return true;
}

static bool put_tensors(const fa2i_case *c, tensors *t)
{
    static uint16_t block[FA2I_CASE_PERIOD];
    fa2_tensor *const views[] = {&t->args.q, &t->args.k, &t->args.v, &t->args.o};
    *t = (tensors){0};
    for (int i = 0; i < 4; i++) {
        const fa2i_extent e = fa2i_case_extent(c, (fa2i_operand)i);
        t->bytes[i] = (size_t)e.elems * sizeof *block;
        if (cuMemAlloc(&t->memory[i], t->bytes[i]) != CUDA_SUCCESS)
            return false;
        if (i < 3) {
            const size_t have = fa2i_case_fill(c, (fa2i_operand)i, block);
            for (size_t at = 0; at < (size_t)e.elems; at += have) {
                const size_t count = (size_t)e.elems - at < have ? (size_t)e.elems - at : have;
                cuMemcpyHtoD(t->memory[i] + at * 2, block, count * 2);
            }
        } else {
            cuMemsetD32Async(t->memory[i], FA2I_POISON, t->bytes[i] / 4, NULL);
        }
        *views[i] = (fa2_tensor){.data = (void *)(uintptr_t)t->memory[i],
                                 .stride_batch = e.stride_batch,
                                 .stride_seq = e.stride_seq,
                                 .stride_head = e.stride_head};
    }
    return true;
}

static void release_tensors(tensors *t)
{
    for (int i = 0; i < TENSORS; i++)
        if (t->memory[i] != 0)
            cuMemFree(t->memory[i]);
}

static bool judge(const fa2i_expected *e, const tensors *t, char *why, size_t why_bytes)
{
    unsigned char *output = fa2i_alloc(e->output_bytes + 16);
    fa2i_verification verdict = {0};
    bool ok = false;
    if (output == NULL)
        return false;
    CUresult result = cuMemcpyDtoH(output, t->memory[3], t->bytes[3]);
    if (result == CUDA_SUCCESS && t->memory[LSE] != 0)
        result = cuMemcpyDtoH(output + t->bytes[3], t->memory[LSE], t->bytes[LSE]);
    if (result != CUDA_SUCCESS)
        snprintf(why, why_bytes, "%s", fa2_sim_message());
    else
        ok = fa2i_expected_judge(e, "software device", output, 0, &verdict) == FA2_OK &&
             verdict.outcome == FA2I_OUTCOME_OK;
    if (result == CUDA_SUCCESS && !ok)
        snprintf(why, why_bytes, "%s", verdict.detail);
    fa2i_free(output);
    return ok;
}

enum {
    FILLS = 1 << SIM_ST_SHARED_16 | 1 << SIM_COPY_TO_SHARED,
    LAST_READS = 1 << SIM_LD_SHARED_16
};

/* Where a layout cannot avoid bank conflicts; everywhere else there must be none. */
static const struct {
    const char *family, *layout; /* how the variant begins, what it has */
    int row_elems;               /* unless rows, padded to 16, are a multiple of this */
    unsigned ways;               /* a bit each */
} conflicting[] = {
    /* Rows are an odd number of 16-byte chunks apart: one column of eight rows is in different
     * banks, but eight chunks in row order, as fills write and the last reads of O take them, only
     * if they all lie in one row. Families that split read O from a layout of its own. */
    {"fwd_sm", "layout=pad", 64, FILLS | LAST_READS},
    {"fwd_splitkv_", "layout=pad", 64, FILLS},
};

static bool may_conflict(const fa2i_variant *v, int head_dim, int way)
{
    const int row_elems = (head_dim + 15) / 16 * 16;
    for (size_t i = 0; i < sizeof conflicting / sizeof *conflicting; i++)
        if (strncmp(v->text, conflicting[i].family, strlen(conflicting[i].family)) == 0 &&
            strstr(v->text, conflicting[i].layout) != NULL &&
            row_elems % conflicting[i].row_elems != 0 && conflicting[i].ways >> way & 1)
            return true;
    return false;
}

/* Loads fill whole sectors where rows are whole sectors that lie one behind the other. The plain
 * loads of the launch that combines splits take single numbers, and share their way with Turing's
 * fills, which are judged where there is one split. */
static bool may_spread(const fa2i_case *c, const fa2i_grid *grid, int way)
{
    return way == SIM_ST_GLOBAL || c->problem.head_dim % 16 != 0 ||
           c->layout == FA2I_LAYOUT_GAPPED || (way == SIM_LD_GLOBAL && grid->splits > 1);
}

static bool traffic_is_ideal(const fa2i_variant *v, const fa2i_case *c, const fa2i_grid *grid,
                             char *why, size_t why_bytes)
{
    sim_totals t;
    double us = 0;
    fa2_sim_totals(&t, &us);
    for (int way = 0; way < SIM_WAYS; way++) {
        const bool shared = way < SIM_LD_GLOBAL;
        const sim_traffic *traffic = &t.traffic[way];
        if (traffic->moved == traffic->ideal ||
            (shared ? may_conflict(v, c->problem.head_dim, way) : may_spread(c, grid, way)))
            continue;
        snprintf(why, why_bytes, "%llu %s too many, most of them at %s",
                 (unsigned long long)(traffic->moved - traffic->ideal),
                 shared ? "wavefronts" : "sectors", traffic->worst_at);
        return false;
    }
    return true;
}

static bool run(const fa2i_device *device, const fa2i_loaded *loaded, const fa2i_grid *grid,
                const fa2i_expected *e, const tensors *t, char *why)
{
    sim_totals before;
    double us = 0;
    fa2_sim_totals(&before, &us); /* from here on they count this launch alone */
    if (fa2i_forward_args_check(&e->c.problem, &t->args) == FA2_OK &&
        fa2i_launch_forward(device, loaded, grid, &e->c.problem, &t->args, NULL) == FA2_OK)
        return judge(e, t, why, FORWARD_WHY_BYTES) &&
               traffic_is_ideal(&loaded->variant, &e->c, grid, why, FORWARD_WHY_BYTES);
    snprintf(why, FORWARD_WHY_BYTES, "%s", fa2_last_message());
    return false;
}

bool forward_launch(const fa2i_device *device, const fa2i_loaded *loaded,
                    const fa2i_expected *expected, char why[FORWARD_WHY_BYTES], int32_t *ret_splits)
{
    const fa2i_case *c = &expected->c;
    tensors t = {0};
    fa2i_grid grid = {0};
    bool ok = false;
    if (fa2i_grid_of(&device->card, &loaded->variant, &c->problem, &grid) != FA2_OK) {
        snprintf(why, FORWARD_WHY_BYTES, "%s", fa2_last_message());
        return false;
    }
    snprintf(why, FORWARD_WHY_BYTES, "no memory for the tensors");
    if (put_tensors(c, &t) && put_rest(c, &grid, &t))
        ok = run(device, loaded, &grid, expected, &t, why);
    release_tensors(&t);
    if (ret_splits != NULL)
        *ret_splits = grid.splits;
    return ok;
}
