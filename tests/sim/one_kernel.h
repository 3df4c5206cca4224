/*
 * A variant's kernel on the software device, and random numbers for it: what tests share that launch kernels by
 * themselves. A failure ends the test.
 */
#pragma once

#include <cuda.h>
#include <math.h>
#include "runtime/base/alloc.h"
#include "runtime/cuda/compile.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/loaded.h"
#include "runtime/lua/generator.h"
#include "tests/sim/must.h"
#include "tuner/judge/case.h"

static inline CUdeviceptr one_allocate(size_t bytes)
{
    CUdeviceptr at = 0;
    must_be(cuMemAlloc(&at, bytes) == CUDA_SUCCESS, "memory");
    return at;
}

/* Compiles the variant of a text and loads it. The caller unloads it. */
static inline void one_load(const fa2i_device *device, fa2i_generator *generator, const char *text,
                            fa2i_loaded *ret_loaded)
{
    char *source = NULL;
    fa2i_variant variant;
    fa2i_target target;
    fa2i_kernel kernel = {0};
    must(fa2i_generator_variant(generator, text, &variant), text);
    must(fa2i_generator_source(generator, text, &source), text);
    must(fa2i_target_for(device->card.arch, true, &target), text);
    must(fa2i_compile(&variant, source, &target, "test", &kernel), text);
    must_be(kernel.image.data != NULL, kernel.log != NULL ? kernel.log : text);
    must(fa2i_load(device, &kernel, ret_loaded, NULL), text);
    fa2i_kernel_done(&kernel);
    fa2i_free(source);
}

/* Returns a number between 0 and 1, and a normal one. */
static inline double one_uniform(uint64_t *state)
{
    return ((double)(fa2i_random(state) >> 11) + 0.5) * 0x1p-53;
}

static inline double one_normal(uint64_t *state)
{
    return sqrt(-2 * log(one_uniform(state))) * cos(2 * 3.14159265358979 * one_uniform(state));
}
