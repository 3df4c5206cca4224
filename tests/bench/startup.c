/*
 * Where the time of a first call goes, in a fresh process.
 *
 * startup whole DATABASE SHAPE    fa2_context_create and fa2_prepare, as a program has them
 * startup parts DATABASE SHAPE    the same step by step, for a kernel that is not stored; the database is made
 *
 * SHAPE as for fa2-tune --shape. One line "part: ms" each.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "cache/content/evidence.h"
#include "cache/shipped/shipped.h"
#include "gpu.h"
#include "runtime/base/alloc.h"
#include "runtime/cuda/compile.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/loaded.h"
#include "runtime/lua/generator.h"
#include "runtime/ops/op.h"
#include "runtime/plan/share.h"
#include "tuner/input/shapes.h"

static double started_ms;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Print the time since the last part. */
static void tell(const char *part)
{
    const double now = now_ms();
    printf("%s: %.2f\n", part, now - started_ms);
    started_ms = now_ms();
}

static void whole(const char *database, const fa2_problem *problem)
{
    fa2_context *context = NULL;
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = database};
    started_ms = now_ms();
    gpu_must_fa2(fa2_context_create(&config, &context), "fa2_context_create");
    tell("context");
    gpu_must_fa2(fa2_prepare(context, problem), "fa2_prepare");
    tell("first call");
    fa2_context_destroy(context);
}

/* Teaches the generator all evidence: from the database, and from the measurements that come with fa2. */
static void learn(fa2i_generator *generator, fa2i_cache *cache, const fa2i_card *card, const fa2_problem *problem)
{
    const int abi = fa2i_op_of(problem)->abi;
    char *folder = NULL;
    fa2i_evidence shipped = {0}, evidence = {0};
    gpu_must_fa2(fa2i_share_find(&folder), "folder of shipped times");
    gpu_must_fa2(fa2i_share_read(folder, card, problem->op, NULL, NULL, &shipped), "shipped times");
    tell("model: shipped times");
    gpu_must_fa2(fa2i_cache_evidence(cache, card, problem->op, abi, &evidence), "evidence");
    gpu_must_fa2(fa2i_shipped_merge(&shipped, card, &evidence), "evidence");
    tell("model: evidence");
    gpu_must_fa2(fa2i_generator_learn(generator, problem->op, &evidence, card), "learning");
    tell("model: learning");
    fa2i_evidence_done(&shipped);
    fa2i_evidence_done(&evidence);
    fa2i_free(folder);
}

static void parts(const fa2i_device *device, const char *database, const fa2_problem *problem)
{
    fa2i_cache *cache = NULL;
    fa2i_generator *generator = NULL;
    fa2i_option *options = NULL;
    size_t count = 0;
    fa2i_variant variant;
    fa2i_target target;
    fa2i_kernel kernel = {0};
    fa2i_loaded loaded = {0};
    char *source = NULL;
    const fa2i_nvrtc_table *nvrtc = NULL;
    started_ms = now_ms();
    gpu_must_fa2(fa2i_cache_open(database, FA2I_CACHE_WRITE, NULL, NULL, &cache), database);
    tell("database");
    gpu_must_fa2(fa2i_generator_create(&generator), "generator");
    tell("model: reading scripts");
    learn(generator, cache, &device->card, problem);
    gpu_must_fa2(fa2i_generator_rank(generator, problem, &device->card, &options, &count), "ranking");
    tell("model: ranking");
    gpu_must_fa2(fa2i_generator_variant(generator, options[0].text, &variant), options[0].text);
    gpu_must_fa2(fa2i_generator_source(generator, options[0].text, &source), options[0].text);
    tell("kernel text");
    gpu_must_fa2(fa2i_nvrtc_get(&nvrtc), "NVRTC");
    gpu_must_fa2(fa2i_target_for(device->card.arch, false, &target), "target");
    tell("NVRTC: loading it");
    gpu_must_fa2(fa2i_compile(&variant, source, &target, fa2i_generator_id(generator), &kernel), "compiling");
    tell("NVRTC: compiling");
    const fa2_status st = fa2i_load(device, &kernel, &loaded, NULL);
    tell(st == FA2_OK ? "load" : "load, which failed"); /* the software device takes PTX alone */
    gpu_must_fa2(fa2i_cache_put_kernel(cache, &kernel), "storing");
    tell("store");
    printf("%s, %zu options, %zu bytes of code\n", variant.text, count, kernel.image.bytes);
    fa2i_unload(device, &loaded);
    fa2i_kernel_done(&kernel);
    fa2i_free(source);
    fa2i_free(options);
    fa2i_generator_destroy(generator);
    fa2i_cache_close(cache);
}

int main(int argc, char **argv)
{
    fa2i_device device = {0};
    fa2i_shapes shapes = {0};
    if (argc != 4 || (strcmp(argv[1], "whole") != 0 && strcmp(argv[1], "parts") != 0)) {
        fprintf(stderr, "usage: startup whole|parts DATABASE SHAPE\n");
        return 2;
    }
    const int status = gpu_open(&device);
    if (status != 0)
        return status;
    gpu_must_fa2(fa2i_shapes_add_text(&shapes, argv[3]), argv[3]);
    if (argv[1][0] == 'w')
        whole(argv[2], &shapes.items[0]);
    else
        parts(&device, argv[2], &shapes.items[0]);
    fa2i_shapes_done(&shapes);
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return 0;
}
