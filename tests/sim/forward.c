/*
 * Tensors, launch, judgement.
 *
 * Traffic is judged after the numbers: no bank conflict in a layout that claims none, and loads
 * that touch no sector more than their bytes fill. Families that split claim it of the tiles only,
 * not of merging and combining the parts.
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

/* Rows of 16-byte chunks that begin in different banks modulo 8, or are permuted. Where D is padded
 * to a multiple of 16, the last reads of O skip the padding chunk of each row, and no layout claims
 * that. */
static bool claims_no_conflicts(const fa2i_variant *v, int head_dim)
{
    return head_dim % 16 == 0 &&
           (strstr(v->text, "layout=swizzle") != NULL || head_dim / 16 % 4 == 0);
}

static uint64_t excess(const sim_count *count)
{
    return count->wavefronts - count->wavefronts_ideal;
}

static bool traffic_is_ideal(const fa2i_variant *v, const fa2i_case *c, const fa2i_grid *grid,
                             char *why, size_t why_bytes)
{
    sim_totals t;
    double us = 0;
    fa2_sim_totals(&t, &us);
    const bool whole_sectors =
        c->problem.head_dim % 16 == 0 && c->layout != FA2I_LAYOUT_GAPPED && grid->splits == 1;
    const uint64_t conflicts = v->waves > 0 ? excess(&t.tile_reads) + excess(&t.tile_copies)
                                            : excess(&t.shared_reads) + excess(&t.shared_writes);
    const uint64_t spread = t.global_reads.sectors - t.global_reads.sectors_ideal;
    if (claims_no_conflicts(v, c->problem.head_dim) && conflicts > 0)
        snprintf(why, why_bytes, "%llu wavefronts too many", (unsigned long long)conflicts);
    else if (whole_sectors && spread > 0)
        snprintf(why, why_bytes, "%llu sectors too many", (unsigned long long)spread);
    else
        return true;
    return false;
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
