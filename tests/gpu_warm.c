/*
 * A tuned database is sufficient: a new process without NVRTC runs every problem that was tuned on this device, and
 * fa2_explain says "exact". Usage: gpu_warm DATABASE. It prints the time of the first call beyond CUDA's own start.
 */
#include <stdlib.h>
#include <time.h>
#include "cache/content/report.h"
#include "check.h"
#include "gpu.h"
#include "tuner/input/shapes.h"

enum { MAX_GIB = 24 }; /* of tensors; larger problems are prepared but not launched */

/* Collects the problem of a row of the view `winners`, if it was measured. */
static int add_winner(void *user, int columns, const char *const *names, const char *const *values)
{
    static const char *const keys[][2] = {{"op", "op"},        {"batch", "B"},     {"heads_q", "Hq"},
                                          {"heads_kv", "Hkv"}, {"seq_q", "Sq"},    {"seq_k", "Sk"},
                                          {"head_dim", "D"},   {"dtype", "dtype"}, {"causal", "causal"}};
    char text[256] = "";
    bool measured = false;
    for (int i = 0; i < columns; i++) {
        measured = measured || (strcmp(names[i], "source") == 0 && strcmp(values[i], "measured") == 0);
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            size_t used = strlen(text);
            if (strcmp(names[i], keys[k][0]) == 0)
                snprintf(text + used, sizeof text - used, "%s%s=%s", used > 0 ? "," : "", keys[k][1], values[i]);
        }
    }
    if (measured)
        CHECK_EQ(fa2i_shapes_add_text(user, text), FA2_OK);
    return 0;
}

static void read_winners(const char *path, fa2i_shapes *ret_shapes)
{
    fa2i_cache *cache = NULL;
    gpu_must_fa2(fa2i_cache_open(path, FA2I_CACHE_READ, NULL, NULL, &cache), path);
    gpu_must_fa2(fa2i_cache_list_winners(cache, NULL, add_winner, ret_shapes), path);
    fa2i_cache_close(cache);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static bool is_small(const fa2_problem *p)
{
    double elems = (double)p->batch * p->head_dim * (2.0 * p->heads_q * p->seq_q + 2.0 * p->heads_kv * p->seq_k);
    return elems * 2 < MAX_GIB * 1073741824.0;
}

static void run(const fa2i_device *device, fa2_context *context, const fa2_problem *problem)
{
    fa2_explanation explanation = {.struct_bytes = sizeof explanation};
    gpu_call call;
    gpu_inputs inputs;

    CHECK_EQ(fa2_prepare(context, problem), FA2_OK);
    CHECK_EQ(fa2_explain(context, problem, &explanation), FA2_OK);
    CHECK_EQ(explanation.rule, FA2_RULE_EXACT);
    CHECK(explanation.measured);
    CHECK_EQ(explanation.spill_bytes, 0);
    if (!is_small(problem))
        return;
    if (problem->op == FA2_OP_BACKWARD) {
        gpu_gradients gradients;
        CHECK_EQ(gpu_gradients_init(device, context, problem, &gradients), FA2_OK);
        CHECK_EQ(fa2_backward(context, problem, &gradients.args, NULL), FA2_OK);
        gpu_must(device, device->cuda->ctx_synchronize(), "cuCtxSynchronize");
        gpu_gradients_done(&gradients);
        return;
    }
    CHECK_EQ(gpu_call_init(device, context, problem, GPU_BSHD, true, &call), FA2_OK);
    gpu_inputs_init(problem, 1, 1, &inputs);
    gpu_call_put(&call, &inputs);
    CHECK_EQ(fa2_forward(context, problem, &call.args, NULL), FA2_OK);
    gpu_must(device, device->cuda->ctx_synchronize(), "cuCtxSynchronize");
    gpu_inputs_done(&inputs);
    gpu_call_done(&call);
}

int main(int argc, char **argv)
{
    fa2i_device device = {0};
    fa2i_shapes shapes = {0};
    fa2_context *context = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: gpu_warm DATABASE\n");
        return 2;
    }
    int status = gpu_open(&device);
    if (status != 0)
        return status;
    setenv("FA2_NVRTC_LIBRARY", "/nonexistent/libnvrtc.so", 1);
    read_winners(argv[1], &shapes);
    CHECK(shapes.count > 0);

    fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = argv[1], .read_only = 1};
    double start = now_us();
    gpu_must_fa2(fa2_context_create(&config, &context), "fa2_context_create");
    double created = now_us();
    gpu_must_fa2(fa2_prepare(context, &shapes.items[0]), "fa2_prepare");
    printf("context %.0f us, first prepare %.0f us\n", created - start, now_us() - created);
    for (size_t i = 0; i < shapes.count; i++)
        run(&device, context, &shapes.items[i]);
    printf("%zu tuned problems run without NVRTC\n", shapes.count);

    fa2_context_destroy(context);
    fa2i_shapes_done(&shapes);
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return check_done();
}
