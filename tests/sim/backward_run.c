/*
 * Launches of backward kernels, and the checks of results and traffic.
 */
#include "tests/sim/backward_run.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/cuda/tensor_map.h"
#include "runtime/ops/op.h"
#include "tests/sim/sim.h"
#include "tuner/judge/number.h"

/* ---- launch ---- */

/* maps: the main step's second parameter, where the recipe has any. */
static bool launch_step(CUmodule module, const fa2i_step *step, unsigned blocks, fa2i_params *params, CUtensorMap *maps)
{
    CUfunction function = NULL;
    void *arguments[] = {params, maps};
    return cuModuleGetFunction(&function, module, step->entry) == CUDA_SUCCESS &&
           cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, step->smem_bytes) ==
               CUDA_SUCCESS &&
           cuLaunchKernel(function, blocks, 1, 1, (unsigned)step->threads, 1, 1, (unsigned)step->smem_bytes, NULL,
                          arguments, NULL) == CUDA_SUCCESS &&
           cuCtxSynchronize() == CUDA_SUCCESS;
}

static CUdeviceptr put(const void *data, size_t bytes)
{
    CUdeviceptr memory = 0;
    if (cuMemAlloc(&memory, bytes) != CUDA_SUCCESS) {
        fprintf(stderr, "no device memory\n");
        exit(1);
    }
    if (data != NULL)
        cuMemcpyHtoD(memory, data, bytes);
    else
        cuMemsetD32Async(memory, 0xffffffffu, bytes / 4, NULL);
    return memory;
}

static bool judge_one(const work *w, int which, const uint16_t *got, char *why)
{
    static const char *const names[] = {"dQ", "dK", "dV"};
    const host_tensor *x = &w->tensor[which];
    const int d = w->t->d;
    double bound = 0, worst = -1, largest = 0;
    int worst_at[4] = {0};
    uint8_t *written = must_alloc(x->elems, 1);
    const size_t values = (size_t)w->s.batch * (size_t)x->heads * (size_t)x->seq * (size_t)d;
    for (size_t i = 0; i < values; i++) {
        bound = fmax(bound, fabs(x->plain[i] - x->exact[i]));
        largest = fmax(largest, fabs(x->exact[i]));
    }
    /* Among few numbers the plain implementation may have a small error by luck. So its error counts as at least half a
     * unit in the last place of the largest number. */
    const int bits = w->t->dtype == FA2_BF16 ? 8 : 11;
    bound = fmax(bound, largest > 0 ? ldexp(1, ilogb(largest) - bits) : 0);
    bound = 2 * bound + 1e-5;
    double worst_got = 0, worst_exact = 0;
    for (int b = 0; b < w->s.batch; b++)
        for (int h = 0; h < x->heads; h++)
            for (int i = 0; i < x->seq; i++) {
                const double *exact = row_of(x->exact, w, x, b, h, i);
                const bool sees_none = which == DQ && isinf(w->lse[(b * x->heads + h) * x->seq + i]);
                for (int c = 0; c < d; c++) {
                    const size_t index = row_offset(x, b, h, i) + (size_t)c;
                    const double value = fa2i_from_bits(w->t->dtype, got[index]);
                    const double error = sees_none && value != 0 ? INFINITY : fabs(value - exact[c]);
                    written[index] = 1;
                    if (!(error <= worst)) {
                        worst = isnan(error) ? INFINITY : error;
                        worst_got = value, worst_exact = exact[c];
                        worst_at[0] = b, worst_at[1] = h, worst_at[2] = i, worst_at[3] = c;
                    }
                }
            }
    bool clean = true;
    for (size_t i = 0; i < x->elems; i++)
        clean = clean && (written[i] || got[i] == 0xffff);
    free(written);
    if (clean && worst <= bound)
        return true;
    snprintf(why, BACKWARD_WHY_BYTES, "%s%s: %g at b=%d h=%d row=%d column=%d, expected %g: %.2f x the bound",
             names[which - DQ], clean ? "" : " and beside it", worst_got, worst_at[0], worst_at[1], worst_at[2],
             worst_at[3], worst_exact, worst / bound);
    return false;
}

/* Returns true if the layout cannot avoid bank conflicts. Padded rows begin in different banks. But eight chunks in row
 * order, as fills write them and the last reads read them, are in different banks only if they all lie in one row. */
static bool may_conflict(const tuning *t, int way)
{
    return strstr(t->variant.text, "layout=pad") != NULL && t->d % 64 != 0 &&
           (way == SIM_ST_SHARED_16 || way == SIM_COPY_TO_SHARED || way == SIM_LD_SHARED_16);
}

static backward_costs conflicts;
static char last_conflicting[FA2I_VARIANT_CHARS];

static void note_conflicts(const tuning *t, double share)
{
    if (share > 0 && strcmp(last_conflicting, t->variant.text) != 0) {
        conflicts.variants++;
        snprintf(last_conflicting, sizeof last_conflicting, "%s", t->variant.text);
    }
    conflicts.most = fmax(conflicts.most, share);
}

const backward_costs *backward_conflicts(void)
{
    return &conflicts;
}

static bool judge_traffic(const tuning *t, char *why)
{
    sim_totals totals;
    double us = 0, excess = 0, all = 0;
    fa2_sim_totals(&totals, &us);
    for (int way = 0; way < SIM_LD_GLOBAL; way++) {
        const sim_traffic *traffic = &totals.traffic[way];
        all += (double)traffic->moved;
        excess += (double)(traffic->moved - traffic->ideal);
        if (traffic->moved == traffic->ideal || may_conflict(t, way))
            continue;
        snprintf(why, BACKWARD_WHY_BYTES, "%llu wavefronts too many of %llu, most of them at %s",
                 (unsigned long long)(traffic->moved - traffic->ideal), (unsigned long long)traffic->moved,
                 traffic->worst_at);
        return false;
    }
    note_conflicts(t, all > 0 ? excess / all : 0);
    return true;
}

static bool launch_all(const work *w, CUmodule module, const fa2_backward_args *args, const fa2i_grid *grid,
                       char why[BACKWARD_WHY_BYTES])
{
    const fa2i_recipe *recipe = &w->t->variant.recipe;
    const fa2i_op *op = fa2i_op_of(&w->problem);
    fa2i_params params;
    bool ok = op->check_args(&w->problem, args, grid) == FA2_OK;
    snprintf(why, BACKWARD_WHY_BYTES, "%s", ok ? "" : fa2_last_message());
    op->fill(grid, &w->problem, args, &params);
    const fa2i_cuda_table cuda = {.tensor_map_encode_tiled = cuTensorMapEncodeTiled};
    CUtensorMap maps[FA2I_RECIPE_MAPS];
    if (ok && recipe->map_count > 0)
        must(fa2i_maps_get(&cuda, NULL, recipe, &w->problem, &params, maps), "tensor maps");
    for (int i = 0; ok && i < recipe->step_count; i++) {
        if (grid->blocks[i] == 0 || op->does_without(recipe->steps[i].role, args))
            continue;
        ok = launch_step(module, &recipe->steps[i], grid->blocks[i], &params, maps);
        snprintf(why, BACKWARD_WHY_BYTES, "%s", ok ? "" : fa2_sim_message());
    }
    return ok;
}

/* Launches again. Gradients that must be reproducible must be equal in every byte. */
static bool repeats(const work *w, CUmodule module, const fa2_backward_args *args, const fa2i_grid *grid,
                    const fa2_tensor view[TENSORS], char why[BACKWARD_WHY_BYTES])
{
    uint16_t *first[TENSORS] = {NULL};
    bool ok = true;
    for (int i = w->t->deterministic ? DQ : DK; i < TENSORS; i++) {
        first[i] = must_alloc(w->tensor[i].elems, sizeof *first[i]);
        if (view[i].data != NULL)
            cuMemcpyDtoH(first[i], (CUdeviceptr)view[i].data, w->tensor[i].elems * 2);
    }
    ok = launch_all(w, module, args, grid, why);
    for (int i = INPUTS; i < TENSORS; i++) {
        uint16_t *got = must_alloc(w->tensor[i].elems, sizeof *got);
        if (ok && view[i].data != NULL && first[i] != NULL) {
            cuMemcpyDtoH(got, (CUdeviceptr)view[i].data, w->tensor[i].elems * 2);
            ok = memcmp(got, first[i], w->tensor[i].elems * 2) == 0;
            snprintf(why, BACKWARD_WHY_BYTES, "%s", ok ? "" : "a second launch gives other bits");
        }
        free(got);
        free(first[i]);
    }
    return ok;
}

bool backward_run(const work *w, CUmodule module, char why[BACKWARD_WHY_BYTES])
{
    const shape *s = &w->s;
    const size_t rows = (size_t)s->batch * (size_t)s->heads_q * (size_t)s->seq_q;
    const fa2i_card card = {.sm_count = 6}; /* so that there are both more and fewer key tiles */
    fa2i_grid grid;
    fa2_tensor view[TENSORS];
    must(fa2i_op_of(&w->problem)->grid(&card, &w->t->variant.recipe, &w->problem, &grid), "grid");
    for (int i = 0; i < TENSORS; i++) {
        view[i] = w->tensor[i].place;
        if (i < INPUTS || !(s->unwanted >> (i - INPUTS) & 1))
            view[i].data = (void *)put(w->tensor[i].data, w->tensor[i].elems * 2);
    }
    fa2_backward_args args = {.struct_bytes = sizeof(fa2_backward_args),
                              .q = view[Q],
                              .k = view[K],
                              .v = view[V],
                              .o = view[O],
                              .d_o = view[DO],
                              .dq = view[DQ],
                              .dk = view[DK],
                              .dv = view[DV],
                              .lse = (float *)put(w->lse, rows * sizeof *w->lse),
                              .softcap = w->softcap};
    /* Without dQ no sums of it are needed. */
    args.workspace_bytes = view[DQ].data != NULL ? grid.workspace_bytes : grid.partial_bytes + grid.rows_bytes;
    if (args.workspace_bytes > 0)
        args.workspace = (void *)put(NULL, args.workspace_bytes);
    sim_totals before;
    double us = 0;
    fa2_sim_totals(&before, &us); /* resets the totals for this launch */
    bool ok = launch_all(w, module, &args, &grid, why);
    for (int i = INPUTS; ok && i < TENSORS; i++) {
        uint16_t *got = must_alloc(w->tensor[i].elems, sizeof *got);
        if (view[i].data != NULL) {
            cuMemcpyDtoH(got, (CUdeviceptr)view[i].data, w->tensor[i].elems * 2);
            ok = judge_one(w, i, got, why);
        }
        free(got);
    }
    ok = ok && judge_traffic(w->t, why) && repeats(w, module, &args, &grid, view, why);
    for (int i = 0; i < TENSORS; i++)
        if (view[i].data != NULL)
            cuMemFree((CUdeviceptr)view[i].data);
    cuMemFree((CUdeviceptr)args.lse);
    if (args.workspace != NULL)
        cuMemFree((CUdeviceptr)args.workspace);
    return ok;
}
