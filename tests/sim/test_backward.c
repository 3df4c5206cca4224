/*
 * Backward kernels on the software device, compared with an fp64 reference of all three gradients.
 *
 *     test_backward [-v] [VARIANT...]
 *     test_backward sweep STEP
 *
 * Without variants it runs one of each kind. A sweep runs every STEP-th candidate of the card, over all D, masks and
 * dtypes, and more until every tile and axis value occurs. With FA2_TEST_ALL it runs all of them.
 *
 * Each variant runs on shapes around its tiles: one tile and several, tails, causal with more and fewer queries than
 * keys, grouped heads, all layouts, large logits, unwanted gradients. A launch is right if
 * - the device reports no error
 * - the error of each gradient is at most twice a plain implementation's, plus 1e-5
 * - gradients of rows that see nothing are exactly 0
 * - nothing outside of the tensors is written
 * - there are no bank conflicts, except where a layout cannot avoid them (a sweep prints how many)
 * - a second launch gives the same bits; of dQ only if the variant is deterministic.
 */
#include <stdlib.h>
#include "runtime/base/alloc.h"
#include "runtime/cuda/compile.h"
#include "runtime/lua/generator.h"
#include "tests/check.h"
#include "tests/sim/axes.h"
#include "tests/sim/backward_run.h"

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

/* The SM of the simulated card. */
static int target_arch;

/* Returns NULL after printing what went wrong. */
static CUmodule load(fa2i_generator *generator, const char *text, const fa2i_variant *variant)
{
    fa2i_target target;
    fa2i_kernel kernel = {0};
    CUmodule module = NULL;
    char *source = NULL;
    must(fa2i_generator_source(generator, text, &source), text);
    must(fa2i_target_for(target_arch, true, &target), "the target");
    must(fa2i_compile(variant, source, &target, "test", &kernel), text);
    if (kernel.image.data == NULL)
        fprintf(stderr, "%s\n", kernel.log);
    CHECK(kernel.image.data != NULL);
    if (kernel.image.data != NULL)
        CHECK_EQ(cuModuleLoadDataEx(&module, kernel.image.data, 0, NULL, NULL), CUDA_SUCCESS);
    fa2i_kernel_done(&kernel);
    fa2i_free(source);
    return module;
}

static void run_variant(fa2i_generator *generator, const char *text, bool verbose)
{
    fa2i_variant variant;
    must(fa2i_generator_variant(generator, text, &variant), text);
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
        /* With a window: tiles without a mask between two masked tiles. */
        {1, 2, 1, bc + 4 * br + 9, bc + 4 * br + 5, 2, 1, 0, bc + 3 * br, 2},
    };
    const size_t shape_count = sizeof all / sizeof *all - (t.window ? 0 : 1);
    CUmodule module = load(generator, text, &variant);
    for (size_t i = 0; module != NULL && i < shape_count; i++) {
        const shape *s = &all[i];
        char why[BACKWARD_WHY_BYTES] = "";
        work w;
        make_work(&w, &t, s, 7 + i);
        const bool ok = backward_run(&w, module, why);
        check_count++;
        check_failures += !ok;
        if (!ok || verbose)
            fprintf(stderr, "%s, B=%d Hq=%d Hkv=%d Sq=%d Sk=%d layout %d: %s\n", text, s->batch, s->heads_q,
                    s->heads_kv, s->seq_q, s->seq_k, s->layout, ok ? "right" : why);
        free_work(&w);
        if (!ok)
            break;
    }
    if (module != NULL)
        cuModuleUnload(module);
}

enum { CANDIDATES_MAX = 8192 };

typedef struct candidates {
    char *texts[CANDIDATES_MAX];
    size_t count;
} candidates;

/* Gathers the card's candidates, over all D, masks and dtypes. Unless all: for each D one class of fp16 and one of
 * bf16, with masks in turn. */
static void gather(fa2i_generator *generator, bool all, candidates *found)
{
    static const int head_dims[] = {8, 16, 32, 40, 64, 72, 80, 96, 128, 160, 192, 256};
    enum { KINDS = 2 * 2 * 2 }; /* causal, deterministic, dtype */
    fa2i_card card;
    must(fa2i_generator_card(generator, target_arch, &card), "the card");
    for (size_t i = 0; i < KINDS * sizeof head_dims / sizeof *head_dims; i++) {
        const fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                                     .op = FA2_OP_BACKWARD,
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
        if ((!all && kind != turn && kind != KINDS - 1 - turn) || (problem.dtype == FA2_BF16 && target_arch < 80))
            continue;
        must(fa2i_generator_candidates(generator, &problem, &card, &variants, &count),
             fa2i_problem_shape(&problem).text);
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

/* Runs every step-th candidate, and more until each of their tile and axis values is run. */
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
           target_arch, ran, found.count, backward_conflicts()->variants, 100 * backward_conflicts()->most);
}

static const char *const variants[] = {
    /* Two barriers per tile, exchanged fragments; one barrier and parts of a tile; one stage. */
    "bwd_sm80 d=64 dtype=fp16 causal=1 br=32 bc=64 warps=4 qwarps=2 parts=1 stages=2 "
    "barriers=2 order=early dq=atomic dqbc=0 rows=prepared",
    "bwd_sm80 d=64 dtype=fp16 causal=1 br=64 bc=128 warps=4 qwarps=1 parts=2 stages=2 "
    "barriers=1 order=late dq=atomic dqbc=0 rows=prepared",
    "bwd_sm80 d=128 dtype=bf16 causal=0 br=64 bc=64 warps=4 qwarps=2 parts=1 stages=1 "
    "barriers=2 order=early dq=atomic dqbc=0 rows=prepared",
    /* Separate blocks for dQ, with and without a preparing launch; padding in D. */
    "bwd_sm80 d=40 dtype=fp16 causal=1 br=32 bc=32 warps=2 qwarps=1 parts=1 stages=2 "
    "barriers=2 order=late dq=separate dqbc=32 rows=computed",
    "bwd_sm80 d=72 dtype=bf16 causal=1 deterministic=1 br=64 bc=64 warps=4 qwarps=2 parts=1 "
    "stages=1 "
    "barriers=2 order=late dq=separate dqbc=32 rows=prepared layout=pad",
    /* Deterministic order at the tiles of dQ. */
    "bwd_sm80 d=64 dtype=fp16 causal=1 deterministic=1 br=32 bc=64 warps=4 qwarps=2 parts=1 "
    "stages=2 barriers=2 order=early dq=atomic dqbc=0 rows=prepared",
    "bwd_sm80 d=64 dtype=fp16 causal=0 window=1 deterministic=1 br=64 bc=64 warps=4 qwarps=1 "
    "parts=1 stages=2 barriers=1 order=late dq=atomic dqbc=0 rows=prepared",
    /* One block has all keys of a head: one tile, or several. */
    "bwd_sm80 d=64 dtype=fp16 causal=1 deterministic=1 br=64 bc=64 warps=4 qwarps=2 parts=1 "
    "stages=2 "
    "barriers=2 order=early dq=block dqbc=0 rows=computed",
    "bwd_sm80 d=40 dtype=bf16 causal=0 br=32 bc=32 warps=2 qwarps=1 parts=1 stages=2 "
    "barriers=1 "
    "order=early dq=block dqbc=0 rows=computed",
    /* Several blocks share the queries of a key tile. */
    "bwd_sm80 d=64 dtype=fp16 causal=1 br=32 bc=64 warps=4 qwarps=2 parts=1 stages=2 "
    "barriers=2 order=early dq=atomic dqbc=0 rows=prepared layout=swizzle split=1",
    "bwd_sm80 d=40 dtype=bf16 causal=1 deterministic=1 br=32 bc=32 warps=2 qwarps=1 parts=1 "
    "stages=2 "
    "barriers=1 order=early dq=atomic dqbc=0 rows=prepared layout=swizzle split=1",
    "bwd_sm80 d=64 dtype=fp16 causal=0 window=1 br=32 bc=64 warps=4 qwarps=2 parts=1 stages=1 "
    "barriers=2 order=early dq=separate dqbc=32 rows=computed layout=swizzle split=1",
    /* Windows and softcap, in blocks of keys and in the separate blocks of dQ. */
    "bwd_sm80 d=64 dtype=fp16 causal=0 softcap=1 window=1 br=32 bc=64 warps=4 qwarps=2 parts=1 "
    "stages=2 barriers=2 order=early dq=atomic dqbc=0 rows=prepared",
    "bwd_sm80 d=40 dtype=fp16 causal=1 softcap=1 window=1 br=32 bc=32 warps=2 qwarps=1 parts=1 "
    "stages=2 barriers=2 order=late dq=separate dqbc=32 rows=computed",
};

/* Opens the simulated card in this thread, and finds its SM. */
static bool open_card(void)
{
    CUcontext context = NULL;
    CUdevice device = 0;
    int major = 0, minor = 0;
    if (getenv("FA2_SIM_CARD") == NULL)
        setenv("FA2_SIM_CARD", "a100", 1);
    const bool opened =
        cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
        cuCtxPushCurrent(context) == CUDA_SUCCESS && cuCtxGetDevice(&device) == CUDA_SUCCESS &&
        cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) == CUDA_SUCCESS &&
        cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) == CUDA_SUCCESS;
    target_arch = 10 * major + minor;
    return opened;
}

int main(int argc, char **argv)
{
    const bool verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    fa2i_generator *generator = NULL;
    must(fa2i_generator_create(&generator), "the generator");
    if (!open_card())
        return 1; /* the device has printed why */
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
