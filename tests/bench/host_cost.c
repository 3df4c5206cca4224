/*
 * What fa2_forward and fa2_backward cost on the host.
 *
 * Beyond the launches themselves, for a prepared problem: two loops over the same kernels, grids and
 * parameters are timed in turn: bare cuLaunchKernel, and the call. Each sample is a burst short
 * enough for the launch queue, followed by a wait that is not timed; the figures are medians over
 * many bursts.
 *
 * --growing, of forward: while seq_k grows from 1 to the shape's, as in decoding, the first call of each length
 * and the second. DATABASE "" is an untuned one.
 *
 * Usage: host_cost [--growing] DATABASE [SHAPE], SHAPE as for fa2-tune --shape.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "gpu.h"
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/plan/choose.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/tensor_map.h"
#include "tuner/input/shapes.h"
#include "tuner/search/statistics.h"

enum { BURST = 200, ROUNDS = 201, MOST_SPLITS = 256 /* that any kernel is launched with */ };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

typedef struct cost {
    const fa2i_device *device;
    fa2_context *context;
    fa2i_loaded loaded;
    fa2i_grid grid;
    fa2_problem problem;
    gpu_call call;           /* of forward */
    gpu_gradients gradients; /* of backward */
} cost;

/* The tuned kernel of the problem, loaded beside the context's own. */
static void load_kernel(cost *c, const char *database)
{
    fa2i_cache *cache = NULL;
    fa2i_kernel kernel = {0};
    fa2i_choice *choices = NULL;
    size_t count = 0;
    const fa2i_card *card = &c->device->card;
    const fa2_problem *problem = &c->problem;
    const int abi = fa2i_op_abi(problem);
    gpu_must_fa2(fa2i_cache_open(database, FA2I_CACHE_READ, NULL, NULL, &cache), database);
    gpu_must_fa2(fa2i_cache_choices(cache, card->arch, problem, abi, &choices, &count), database);
    const fa2i_choice *choice = fa2i_choose_exact(choices, count, card, problem);
    if (choice == NULL)
        gpu_must_fa2(fa2i_fail(FA2_E_NOT_FOUND, "this problem is not tuned"), database);
    else
        gpu_must_fa2(fa2i_cache_get_kernel(cache, &choice->winner.kernel, abi, true, &kernel), "the tuned kernel");
    fa2i_free(choices);
    gpu_must_fa2(fa2i_load(c->device, &kernel, &c->loaded, NULL), "fa2i_load");
    gpu_must_fa2(fa2i_op_of(problem)->grid(&c->device->card, &c->loaded.variant.recipe, problem, &c->grid), "grid");
    fa2i_kernel_done(&kernel);
    fa2i_cache_close(cache);
}

static fa2_status call_fa2(const cost *c)
{
    return c->problem.op == FA2_OP_FORWARD ? fa2_forward(c->context, &c->problem, &c->call.args, NULL)
                                           : fa2_backward(c->context, &c->problem, &c->gradients.args, NULL);
}

/* The launches of a call, with its own parameters, and nothing else. */
static void launch_steps(const cost *c, fa2i_params *params, CUtensorMap *maps)
{
    void *arguments[] = {params, maps};
    for (int i = 0; i < c->loaded.variant.recipe.step_count; i++) {
        const fa2i_loaded_step *step = &c->loaded.steps[i];
        if (c->grid.blocks[i] > 0)
            gpu_must(c->device,
                     c->device->cuda->launch_kernel(step->function, c->grid.blocks[i], 1, 1, step->threads, 1, 1,
                                                    step->smem_bytes, NULL, arguments, NULL),
                     "cuLaunchKernel");
    }
}

/* ns per call of a burst. */
static double burst_ns(const cost *c, bool bare)
{
    fa2i_params params;
    CUtensorMap maps[FA2I_RECIPE_MAPS];
    const void *args = c->problem.op == FA2_OP_FORWARD ? (const void *)&c->call.args : (const void *)&c->gradients.args;
    fa2i_op_of(&c->problem)->fill(&c->grid, &c->problem, args, &params);
    gpu_must_fa2(fa2i_maps_get(c->device->cuda, NULL, &c->loaded.variant.recipe, &c->problem, &params, maps),
                 "tensor maps");
    double start = now_ns();
    for (int i = 0; i < BURST; i++) {
        if (bare)
            launch_steps(c, &params, maps);
        else
            gpu_must_fa2(call_fa2(c), "fa2");
    }
    double spent = (now_ns() - start) / BURST;
    gpu_must(c->device, c->device->cuda->ctx_synchronize(), "cuCtxSynchronize");
    return spent;
}

static void measure(cost *c)
{
    static double bare[ROUNDS], whole[ROUNDS], beyond[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        bare[i] = burst_ns(c, true);
        whole[i] = burst_ns(c, false);
        beyond[i] = whole[i] - bare[i];
    }
    const fa2i_statistics b = fa2i_statistics_of(bare, ROUNDS), w = fa2i_statistics_of(whole, ROUNDS),
                          d = fa2i_statistics_of(beyond, ROUNDS);
    printf("%d launches %.0f ns (%.0f ... %.0f), the call %.0f ns (%.0f ... %.0f), beyond the "
           "launches %.0f ns (%.0f ... %.0f)\n",
           c->loaded.variant.recipe.step_count, b.median, b.q1, b.q3, w.median, w.q1, w.q3, d.median, d.q1, d.q3);
}

static double call_ns(cost *c)
{
    double start = now_ns();
    gpu_must_fa2(fa2_forward(c->context, &c->call.problem, &c->call.args, NULL), "fa2_forward");
    return now_ns() - start;
}

/* A workspace for any length: how many splits one needs is not known before it is prepared. */
static void enlarge_workspace(gpu_call *call)
{
    const size_t bytes =
        sizeof(float) * MOST_SPLITS * gpu_lse_elems(&call->problem) * ((size_t)call->problem.head_dim + 1);
    if (call->workspace != 0)
        gpu_must(call->device, call->device->cuda->mem_free(call->workspace), "cuMemFree");
    gpu_must(call->device, call->device->cuda->mem_alloc(&call->workspace, bytes), "cuMemAlloc");
    call->args.workspace = (void *)(uintptr_t)call->workspace;
    call->args.workspace_bytes = bytes;
}

/* The tensors are the longest problem's: a shorter one uses their beginning. */
static void measure_growing(cost *c)
{
    const int longest = c->call.problem.seq_k;
    const size_t count = (size_t)longest;
    double *first = gpu_host(count, sizeof(*first)), *second = gpu_host(count, sizeof(*second));
    double sum = 0;

    enlarge_workspace(&c->call);
    for (int i = 0; i < longest; i++) {
        c->call.problem.seq_k = i + 1;
        first[i] = call_ns(c);
        second[i] = call_ns(c);
        sum += first[i];
        if (i % (BURST / 2) == 0)
            gpu_must(c->device, c->device->cuda->ctx_synchronize(), "cuCtxSynchronize");
    }
    gpu_must(c->device, c->device->cuda->ctx_synchronize(), "cuCtxSynchronize");
    const fa2i_statistics f = fa2i_statistics_of(first, count), s = fa2i_statistics_of(second, count);
    printf("seq_k 1 ... %d, medians (quartiles): first call of a length %.0f ns (%.0f ... %.0f), "
           "99 %% within %.0f us, the longest %.0f us, all %.1f ms; second call %.0f ns "
           "(%.0f ... %.0f)\n",
           longest, f.median, f.q1, f.q3, first[count * 99 / 100] * 1e-3, first[count - 1] * 1e-3, sum * 1e-6, s.median,
           s.q1, s.q3);
    fa2i_free(first);
    fa2i_free(second);
}

/* The prepared problem, against the bare launch of its kernel. */
static void measure_prepared(cost *c, const char *database)
{
    load_kernel(c, database);
    printf("%s, %d bursts of %d calls, medians (quartiles): ", c->loaded.variant.text, ROUNDS, BURST);
    measure(c);
    fa2i_unload(c->device, &c->loaded);
}

static int usage(void)
{
    fprintf(stderr, "usage: host_cost [--growing] DATABASE [SHAPE]\n");
    return 2;
}

int main(int argc, char **argv)
{
    fa2i_device device = {0};
    fa2i_shapes shapes = {0};
    const bool growing = argc > 1 && strcmp(argv[1], "--growing") == 0;
    const int at = growing ? 2 : 1; /* the database */
    if (argc <= at)
        return usage();
    const char *shape = growing ? "B=1,Hq=32,Hkv=8,Sq=1,Sk=4096,D=128" : "B=1,Hq=8,Sq=512,D=64";
    int status = gpu_open(&device);
    if (status != 0)
        return status;
    gpu_must_fa2(fa2i_shapes_add_text(&shapes, argc > at + 1 ? argv[at + 1] : shape), "shape");
    cost c = {.device = &device, .problem = shapes.items[0]};
    if (growing && c.problem.op != FA2_OP_FORWARD)
        return usage();
    fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = argv[at], .read_only = 1};
    gpu_must_fa2(fa2_context_create(&config, &c.context), "fa2_context_create");
    gpu_must_fa2(c.problem.op == FA2_OP_FORWARD ? gpu_call_init(&device, c.context, &c.problem, GPU_BSHD, true, &c.call)
                                                : gpu_gradients_init(&device, c.context, &c.problem, &c.gradients),
                 "tensors");
    if (growing)
        measure_growing(&c);
    else
        measure_prepared(&c, argv[at]);

    if (c.problem.op == FA2_OP_FORWARD)
        gpu_call_done(&c.call);
    else
        gpu_gradients_done(&c.gradients);
    fa2_context_destroy(c.context);
    fa2i_shapes_done(&shapes);
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return 0;
}
