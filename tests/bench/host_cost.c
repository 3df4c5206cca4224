/*
 * What fa2_forward costs on the host beyond the launch itself, for a prepared problem.
 *
 * Two loops over the same kernel, grid and parameters are timed in turn: bare cuLaunchKernel, and
 * fa2_forward. Each sample is a burst short enough for the launch queue, followed by a wait that is
 * not timed; the figures are medians over many bursts. Usage: host_cost DATABASE [SHAPE], SHAPE as
 * for fa2-tune --shape.
 */
#include <stdio.h>
#include <time.h>
#include "gpu.h"
#include "runtime/choose.h"
#include "runtime/launch.h"
#include "tuner/shapes.h"
#include "tuner/statistics.h"

enum { BURST = 200, ROUNDS = 201 };

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
    gpu_call call;
} cost;

/* The tuned kernel of the problem, loaded beside the context's own. */
static void load_kernel(cost *c, const char *database)
{
    fa2i_cache *cache = NULL;
    fa2i_kernel kernel = {0};
    fa2i_decision decision;
    const fa2_problem *problem = &c->call.problem;
    gpu_must_fa2(fa2i_cache_open(database, FA2I_CACHE_READ, NULL, NULL, &cache), database);
    gpu_must_fa2(fa2i_choose(cache, &c->device->card, problem, &decision), "fa2i_choose");
    gpu_must_fa2(fa2i_cache_get_kernel(cache, &decision.choice.winner.kernel, FA2I_LAUNCH_ABI, true,
                                       &kernel),
                 "the tuned kernel");
    gpu_must_fa2(fa2i_load(c->device, &kernel, &c->loaded, NULL), "fa2i_load");
    gpu_must_fa2(fa2i_grid_of(&c->device->card, &c->loaded.variant, problem, &c->grid), "grid");
    fa2i_kernel_done(&kernel);
    fa2i_cache_close(cache);
}

/* ns per call of a burst. The bare launch passes a zeroed parameter block: with no rows and no
 * blocks that see keys, its kernel ends at once, which the host does not notice. */
static double burst_ns(cost *c, bool bare)
{
    fa2i_forward_params params = {.heads_q = 1, .group = 1, .q_tiles = 1, .splits = 1, .batch = 1};
    void *arguments[] = {&params};
    double start = now_ns();
    for (int i = 0; i < BURST; i++) {
        if (bare)
            gpu_must(c->device,
                     c->device->cuda->launch_kernel(c->loaded.function, c->grid.blocks, 1, 1,
                                                    (unsigned)c->loaded.variant.threads, 1, 1,
                                                    (unsigned)c->loaded.variant.smem_bytes, NULL,
                                                    arguments, NULL),
                     "cuLaunchKernel");
        else
            gpu_must_fa2(fa2_forward(c->context, &c->call.problem, &c->call.args, NULL),
                         "fa2_forward");
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
    const fa2i_statistics b = fa2i_statistics_of(bare, ROUNDS),
                          w = fa2i_statistics_of(whole, ROUNDS),
                          d = fa2i_statistics_of(beyond, ROUNDS);
    printf(
        "cuLaunchKernel %.0f ns (%.0f ... %.0f), fa2_forward %.0f ns (%.0f ... %.0f), beyond the "
        "launch %.0f ns (%.0f ... %.0f)\n",
        b.median, b.q1, b.q3, w.median, w.q1, w.q3, d.median, d.q1, d.q3);
}

int main(int argc, char **argv)
{
    fa2i_device device = {0};
    fa2i_shapes shapes = {0};
    int status = gpu_open(&device);
    if (status != 0)
        return status;
    if (argc < 2) {
        fprintf(stderr, "usage: host_cost DATABASE [SHAPE]\n");
        return 1;
    }
    gpu_must_fa2(fa2i_shapes_add_text(&shapes, argc > 2 ? argv[2] : "B=1,Hq=8,Sq=512,D=64"),
                 "shape");
    cost c = {.device = &device};
    fa2_config config = {.database = argv[1], .read_only = 1};
    gpu_must_fa2(fa2_context_create(&config, &c.context), "fa2_context_create");
    gpu_must_fa2(gpu_call_init(&device, c.context, &shapes.items[0], GPU_BSHD, true, &c.call),
                 "tensors");
    load_kernel(&c, argv[1]);
    printf("%s, %d bursts of %d calls, medians (quartiles): ", c.loaded.variant.text, ROUNDS,
           BURST);
    measure(&c);

    gpu_call_done(&c.call);
    fa2i_unload(&device, &c.loaded);
    fa2_context_destroy(c.context);
    fa2i_shapes_done(&shapes);
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return 0;
}
