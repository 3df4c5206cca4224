/*
 * Backward kernels on the software device, against an fp64 reference of all three gradients.
 *
 *     test_backward [-v] [VARIANT...]
 *     test_backward sweep STEP
 *
 * Without variants: one of each kind. A sweep takes every STEP-th candidate of the generator for the
 * card, over all D, masks and dtypes, and such that every tile and axis value occurs; all of them where
 * FA2_TEST_ALL is set.
 *
 * Each variant runs on shapes around its tiles: one tile and several, tails, causal with more and fewer
 * queries than keys, grouped heads, all layouts, large logits, gradients that are not wanted. Right means:
 * no error of the device; the error of each gradient at most 2 x that of a plain implementation, plus 1e-5;
 * exactly 0 where nothing is seen; nothing written beside the tensors; no bank conflicts, but where a layout cannot
 * avoid them (a sweep says how many); the same bits from a second launch, of dQ where that is asked for.
 */
#include <math.h>
#include <stdlib.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/cuda/compile.h"
#include "runtime/cuda/tensor_map.h"
#include "runtime/lua/generator.h"
#include "runtime/ops/op.h"
#include "tests/check.h"
#include "tests/sim/axes.h"
#include "tests/sim/backward_work.h"
#include "tests/sim/sim.h"
#include "tuner/judge/number.h"

enum { WHY_BYTES = 1200 };

static void must(fa2_status status, const char *what)
{
    if (status == FA2_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, fa2_last_message());
    exit(1);
}

/* ---- launch ---- */

/* maps: the main step's second parameter, where the recipe has any. */
static bool launch_step(CUmodule module, const fa2i_step *step, unsigned blocks,
                        fa2i_params *params, CUtensorMap *maps)
{
    CUfunction function = NULL;
    void *arguments[] = {params, maps};
    return cuModuleGetFunction(&function, module, step->entry) == CUDA_SUCCESS &&
           cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              step->smem_bytes) == CUDA_SUCCESS &&
           cuLaunchKernel(function, blocks, 1, 1, (unsigned)step->threads, 1, 1,
                          (unsigned)step->smem_bytes, NULL, arguments, NULL) == CUDA_SUCCESS &&
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
    /* Among few numbers the plain implementation may be lucky: what the largest one loses by being
     * rounded, half a unit in its last place, counts as its error at least. */
    const int bits = w->t->dtype == FA2_BF16 ? 8 : 11;
    bound = fmax(bound, largest > 0 ? ldexp(1, ilogb(largest) - bits) : 0);
    bound = 2 * bound + 1e-5;
    double worst_got = 0, worst_exact = 0;
    for (int b = 0; b < w->s.batch; b++)
        for (int h = 0; h < x->heads; h++)
            for (int i = 0; i < x->seq; i++) {
                const double *exact = row_of(x->exact, w, x, b, h, i);
                const bool sees_none =
                    which == DQ && isinf(w->lse[(b * x->heads + h) * x->seq + i]);
                for (int c = 0; c < d; c++) {
                    const size_t index = row_offset(x, b, h, i) + (size_t)c;
                    const double value = fa2i_from_bits(w->t->dtype, got[index]);
                    const double error =
                        sees_none && value != 0 ? INFINITY : fabs(value - exact[c]);
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
    snprintf(why, WHY_BYTES,
             "%s%s: %g at b=%d h=%d row=%d column=%d, expected %g: %.2f x the bound",
             names[which - DQ], clean ? "" : " and beside it", worst_got, worst_at[0], worst_at[1],
             worst_at[2], worst_at[3], worst_exact, worst / bound);
    return false;
}

/* Padded rows begin in different banks, but eight chunks in row order, as fills write and the last reads
 * take them, are in different ones only if they all lie in one row. */
static bool may_conflict(const tuning *t, int way)
{
    return strstr(t->variant.text, "layout=pad") != NULL && t->d % 64 != 0 &&
           (way == SIM_ST_SHARED_16 || way == SIM_COPY_TO_SHARED || way == SIM_LD_SHARED_16);
}

/* What bank conflicts that cannot be avoided cost: variants that have them, and the largest share of the wavefronts of
 * a variant's launch on a shape. */
static struct {
    size_t variants;
    char last[FA2I_VARIANT_CHARS];
    double most;
} conflicts;

static void note_conflicts(const tuning *t, double share)
{
    if (share > 0 && strcmp(conflicts.last, t->variant.text) != 0) {
        conflicts.variants++;
        snprintf(conflicts.last, sizeof conflicts.last, "%s", t->variant.text);
    }
    conflicts.most = fmax(conflicts.most, share);
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
        snprintf(why, WHY_BYTES, "%llu wavefronts too many of %llu, most of them at %s",
                 (unsigned long long)(traffic->moved - traffic->ideal),
                 (unsigned long long)traffic->moved, traffic->worst_at);
        return false;
    }
    note_conflicts(t, all > 0 ? excess / all : 0);
    return true;
}

static bool launch_all(const work *w, CUmodule module, const fa2_backward_args *args,
                       const fa2i_grid *grid, char why[WHY_BYTES])
{
    const fa2i_recipe *recipe = &w->t->variant.recipe;
    const fa2i_op *op = fa2i_op_of(&w->problem);
    fa2i_params params;
    bool ok = op->check_args(&w->problem, args, grid) == FA2_OK;
    snprintf(why, WHY_BYTES, "%s", ok ? "" : fa2_last_message());
    op->fill(grid, &w->problem, args, &params);
    const fa2i_cuda_table cuda = {.tensor_map_encode_tiled = cuTensorMapEncodeTiled};
    CUtensorMap maps[FA2I_RECIPE_MAPS];
    if (ok && recipe->map_count > 0)
        must(fa2i_maps_get(&cuda, NULL, recipe, &w->problem, &params, maps), "tensor maps");
    for (int i = 0; ok && i < recipe->step_count; i++) {
        if (grid->blocks[i] == 0 || op->does_without(recipe->steps[i].role, args))
            continue;
        ok = launch_step(module, &recipe->steps[i], grid->blocks[i], &params, maps);
        snprintf(why, WHY_BYTES, "%s", ok ? "" : fa2_sim_message());
    }
    return ok;
}

/* Launch again: every byte of a gradient that gives the same bits is the same. */
static bool repeats(const work *w, CUmodule module, const fa2_backward_args *args,
                    const fa2i_grid *grid, const fa2_tensor view[TENSORS], char why[WHY_BYTES])
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
            snprintf(why, WHY_BYTES, "%s", ok ? "" : "a second launch gives other bits");
        }
        free(got);
        free(first[i]);
    }
    return ok;
}

static bool run_work(const work *w, CUmodule module, char why[WHY_BYTES])
{
    const shape *s = &w->s;
    const size_t rows = (size_t)s->batch * (size_t)s->heads_q * (size_t)s->seq_q;
    const fa2i_card card = {.sm_count = 6}; /* few: tiles of keys are more than that, and less */
    fa2i_grid grid;
    fa2_tensor view[TENSORS];
    must(fa2i_op_of(&w->problem)->grid(&card, &w->t->variant.recipe, &w->problem, &grid), "grid");
    for (int i = 0; i < TENSORS; i++) {
        view[i] = w->tensor[i].place;
        if (i < INPUTS || !(s->unwanted >> (i - INPUTS) & 1))
            view[i].data = (void *)put(w->tensor[i].data, w->tensor[i].elems * 2);
    }
    fa2_backward_args args = {.q = view[Q],
                              .k = view[K],
                              .v = view[V],
                              .o = view[O],
                              .d_o = view[DO],
                              .dq = view[DQ],
                              .dk = view[DK],
                              .dv = view[DV],
                              .lse = (float *)put(w->lse, rows * sizeof *w->lse),
                              .softcap = w->softcap};
    /* Without dQ there are no sums of it. */
    args.workspace_bytes =
        view[DQ].data != NULL ? grid.workspace_bytes : grid.partial_bytes + grid.rows_bytes;
    if (args.workspace_bytes > 0)
        args.workspace = (void *)put(NULL, args.workspace_bytes);
    sim_totals before;
    double us = 0;
    fa2_sim_totals(&before, &us); /* from here on they count this launch alone */
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

/* ---- variants ---- */

static int value_of(const char *text, const char *key)
{
    const char *found = strstr(text, key);
    return found == NULL ? 0 : atoi(found + strlen(key));
}

static tuning tuning_of(const fa2i_variant *v)
{
    return (tuning){.variant = *v,
                    .dtype = strstr(v->text, "bf16") != NULL ? FA2_BF16 : FA2_FP16,
                    .d = value_of(v->text, " d="),
                    .causal = value_of(v->text, " causal="),
                    .window = value_of(v->text, " window="),
                    .softcap = value_of(v->text, " softcap="),
                    .deterministic = value_of(v->text, " deterministic="),
                    .br = v->recipe.rows,
                    .bc = v->recipe.keys};
}

/* The SM of the card that is played. */
static int target_arch;

static void run_variant(fa2i_generator *generator, const char *text, bool verbose)
{
    fa2i_variant variant;
    fa2i_target target;
    fa2i_kernel kernel = {0};
    CUmodule module = NULL;
    char *source = NULL;
    must(fa2i_generator_variant(generator, text, &variant), text);
    must(fa2i_generator_source(generator, text, &source), text);
    const tuning t = tuning_of(&variant);
    const int br = t.br, bc = t.bc;
    const shape all[] = {
        {2, 1, 1, 1, 1, 0, 1, 0, 0, 0},
        {1, 2, 1, br - 1, bc - 1, 0, 1, 0, -1, 3},
        {1, 1, 1, br, bc, 1, 1, 0, 0, 0},
        {1, 2, 2, br + 1, bc + 1, 2, 1, 0, br - 1, 0},
        {1, 1, 1, 2 * br + 1, 2 * bc - 1, 0, 8, 0, bc, 1},
        {2, 4, 2, 2 * br - 1, bc + 1, 1, 1, 0, bc + 1, bc - 1},
        {1, 1, 1, 3 * br, bc / 2 + 1, 2, 1, 0, 3, -1},
        {1, 1, 1, br - 1, 2 * bc + 1, 2, 1, 0, bc - 1, br},
        {1, 3, 1, 3, 2 * bc + 3, 0, 1, 0, bc, 5},
        {1, 1, 1, br + 3, bc, 0, 1, 1, 7, 9},
        {1, 1, 1, br + 3, bc, 0, 1, 6, br, br},
        /* With a window: tiles that need no mask between two that do. */
        {1, 2, 1, bc + 4 * br + 9, bc + 4 * br + 5, 2, 1, 0, bc + 3 * br, 2},
    };
    const size_t shape_count = sizeof all / sizeof *all - (t.window ? 0 : 1);
    must(fa2i_target_for(target_arch, true, &target), "the target");
    must(fa2i_compile(&variant, source, &target, "test", &kernel), text);
    if (kernel.image.data == NULL)
        fprintf(stderr, "%s\n", kernel.log);
    CHECK(kernel.image.data != NULL);
    if (kernel.image.data != NULL)
        CHECK_EQ(cuModuleLoadDataEx(&module, kernel.image.data, 0, NULL, NULL), CUDA_SUCCESS);
    for (size_t i = 0; module != NULL && i < shape_count; i++) {
        const shape *s = &all[i];
        char why[WHY_BYTES] = "";
        work w;
        make_work(&w, &t, s, 7 + i);
        const bool ok = run_work(&w, module, why);
        check_count++;
        check_failures += !ok;
        if (!ok || verbose)
            fprintf(stderr, "%s, B=%d Hq=%d Hkv=%d Sq=%d Sk=%d layout %d: %s\n", text, s->batch,
                    s->heads_q, s->heads_kv, s->seq_q, s->seq_k, s->layout, ok ? "right" : why);
        free_work(&w);
        if (!ok)
            break;
    }
    if (module != NULL)
        cuModuleUnload(module);
    fa2i_kernel_done(&kernel);
    fa2i_free(source);
}

enum { CANDIDATES_MAX = 8192 };

typedef struct candidates {
    char *texts[CANDIDATES_MAX];
    size_t count;
} candidates;

/* Those of the card, over all D, masks and dtypes; where not all are asked for, of each D a class of
 * fp16 and one of bf16, with other masks, in turn. */
static void gather(fa2i_generator *generator, bool all, candidates *found)
{
    static const int head_dims[] = {8, 16, 32, 40, 64, 72, 80, 96, 128, 160, 192, 256};
    enum { KINDS = 2 * 2 * 2 }; /* causal, deterministic, dtype */
    fa2i_card card;
    must(fa2i_generator_card(generator, target_arch, &card), "the card");
    for (size_t i = 0; i < KINDS * sizeof head_dims / sizeof *head_dims; i++) {
        const fa2_problem problem = {.op = FA2_OP_BACKWARD,
                                     .dtype = (fa2_dtype)(i / 4 % 2),
                                     .batch = 1,
                                     .heads_q = 8,
                                     .heads_kv = 8,
                                     .seq_q = 1024,
                                     .seq_k = 1024,
                                     .head_dim = head_dims[i / KINDS],
                                     .causal = (int32_t)(i % 2),
                                     .deterministic = (int32_t)(i / 2 % 2),
                                     .softcap = i / KINDS / 2 % 2 == 1,
                                     .window = i / KINDS % 3 == 1,
                                     .window_left = i / KINDS % 3 == 1 ? 256 : 0};
        const size_t kind = i % KINDS, turn = i / KINDS % 4;
        fa2i_variant *variants = NULL;
        size_t count = 0;
        if ((!all && kind != turn && kind != KINDS - 1 - turn) ||
            (problem.dtype == FA2_BF16 && target_arch < 80))
            continue;
        char text[FA2I_PROBLEM_CHARS];
        fa2i_problem_format(&problem, text, sizeof text);
        must(fa2i_generator_candidates(generator, &problem, &card, &variants, &count), text);
        CHECK(count > 0);
        for (size_t j = 0; j < count && found->count < CANDIDATES_MAX; j++)
            found->texts[found->count++] = strdup(variants[j].text);
        CHECK(found->count < CANDIDATES_MAX);
        fa2i_free(variants);
    }
}

static const char *text_of(const void *user, size_t i)
{
    return ((const candidates *)user)->texts[i];
}

/* Every step-th candidate, and more until each tile and axis value that candidates have is run. */
static void sweep(fa2i_generator *generator, size_t step)
{
    static candidates found;
    static axes values;
    static bool wanted[CANDIDATES_MAX];
    size_t ran = 0;
    gather(generator, step == 1, &found);
    for (size_t i = 0; i < found.count; i += step)
        wanted[i] = true;
    axes_cover(&values, text_of, &found, found.count, wanted);
    CHECK_EQ(axes_missing(&values), 0);
    for (size_t i = 0; i < found.count; i++) {
        if (wanted[i])
            run_variant(generator, found.texts[i], false);
        ran += wanted[i];
        free(found.texts[i]);
    }
    printf("sm_%d: %zu of %zu candidates; %zu have bank conflicts (padded rows that are no "
           "multiple of all banks), at "
           "most %.1f %% of the wavefronts\n",
           target_arch, ran, found.count, conflicts.variants, 100 * conflicts.most);
}

int main(int argc, char **argv)
{
    static const char *const variants[] = {
        /* Two barriers a tile, fragments exchanged; one barrier and parts of a tile; one stage. */
        "bwd_sm80 d=64 dtype=fp16 causal=1 br=32 bc=64 warps=4 qwarps=2 parts=1 stages=2 "
        "barriers=2 order=early dq=red dqbc=0 rows=prepared",
        "bwd_sm80 d=64 dtype=fp16 causal=1 br=64 bc=128 warps=4 qwarps=1 parts=2 stages=2 "
        "barriers=1 order=late dq=red dqbc=0 rows=prepared",
        "bwd_sm80 d=128 dtype=bf16 causal=0 br=64 bc=64 warps=4 qwarps=2 parts=1 stages=1 "
        "barriers=2 order=early dq=red dqbc=0 rows=prepared",
        /* dQ by blocks of its own, with and without a preparing launch; padding in D. */
        "bwd_sm80 d=40 dtype=fp16 causal=1 br=32 bc=32 warps=2 qwarps=1 parts=1 stages=2 "
        "barriers=2 order=late dq=apart dqbc=32 rows=computed",
        "bwd_sm80 d=72 dtype=bf16 causal=1 deterministic=1 br=64 bc=64 warps=4 qwarps=2 parts=1 "
        "stages=1 "
        "barriers=2 order=late dq=apart dqbc=32 rows=prepared layout=pad",
        /* Turns at the tiles of dQ. */
        "bwd_sm80 d=64 dtype=fp16 causal=1 deterministic=1 br=32 bc=64 warps=4 qwarps=2 parts=1 "
        "stages=2 barriers=2 order=early dq=red dqbc=0 rows=prepared",
        "bwd_sm80 d=64 dtype=fp16 causal=0 window=1 deterministic=1 br=64 bc=64 warps=4 qwarps=1 "
        "parts=1 stages=2 barriers=1 order=late dq=red dqbc=0 rows=prepared",
        /* A block has all keys of a head: one tile of them, or several. */
        "bwd_sm80 d=64 dtype=fp16 causal=1 deterministic=1 br=64 bc=64 warps=4 qwarps=2 parts=1 "
        "stages=2 "
        "barriers=2 order=early dq=whole dqbc=0 rows=computed",
        "bwd_sm80 d=40 dtype=bf16 causal=0 br=32 bc=32 warps=2 qwarps=1 parts=1 stages=2 "
        "barriers=1 "
        "order=early dq=whole dqbc=0 rows=computed",
        /* Several blocks share the queries of a tile of keys. */
        "bwd_sm80 d=64 dtype=fp16 causal=1 br=32 bc=64 warps=4 qwarps=2 parts=1 stages=2 "
        "barriers=2 order=early dq=red dqbc=0 rows=prepared layout=swizzle split=1",
        "bwd_sm80 d=40 dtype=bf16 causal=1 deterministic=1 br=32 bc=32 warps=2 qwarps=1 parts=1 "
        "stages=2 "
        "barriers=1 order=early dq=red dqbc=0 rows=prepared layout=swizzle split=1",
        "bwd_sm80 d=64 dtype=fp16 causal=0 window=1 br=32 bc=64 warps=4 qwarps=2 parts=1 stages=1 "
        "barriers=2 order=early dq=apart dqbc=32 rows=computed layout=swizzle split=1",
        /* Windows and caps, in key blocks and in those of dQ alone. */
        "bwd_sm80 d=64 dtype=fp16 causal=0 softcap=1 window=1 br=32 bc=64 warps=4 qwarps=2 parts=1 "
        "stages=2 barriers=2 order=early dq=red dqbc=0 rows=prepared",
        "bwd_sm80 d=40 dtype=fp16 causal=1 softcap=1 window=1 br=32 bc=32 warps=2 qwarps=1 parts=1 "
        "stages=2 barriers=2 order=late dq=apart dqbc=32 rows=computed",
    };
    const bool verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    fa2i_generator *generator = NULL;
    CUcontext context = NULL;
    if (getenv("FA2_SIM_CARD") == NULL)
        setenv("FA2_SIM_CARD", "a100", 1);
    must(fa2i_generator_create(&generator), "the generator");
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxPushCurrent(context) != CUDA_SUCCESS)
        return 1; /* the device has said why */
    CUdevice device = 0;
    int major = 0, minor = 0;
    if (cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) ||
        cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
        return 1;
    target_arch = 10 * major + minor;
    const int first = verbose ? 2 : 1;
    if (argc == 3 && strcmp(argv[1], "sweep") == 0) {
        sweep(generator, getenv("FA2_TEST_ALL") != NULL ? 1 : (size_t)atol(argv[2]));
        argc = 0;
    }
    for (int i = first; i < argc; i++)
        run_variant(generator, argv[i], verbose);
    for (size_t i = 0; argc == first && i < sizeof variants / sizeof *variants; i++)
        run_variant(generator, variants[i], verbose);
    fa2i_generator_destroy(generator);
    return check_done();
}
