/*
 * A kernel on the device: a loaded artifact, with everything that launching its recipe's steps needs.
 */
#pragma once

#include "runtime/cuda/device.h"

typedef struct fa2i_loaded_step {
    CUfunction function;
    unsigned threads, smem_bytes;
    unsigned cluster; /* blocks per cluster */
    bool early;       /* may begin while the step before still runs; its code waits for that step */
} fa2i_loaded_step;

typedef struct fa2i_loaded {
    CUmodule module;
    fa2i_loaded_step steps[FA2I_RECIPE_STEPS]; /* as many as the recipe has */
    struct fa2i_kept_maps *maps;               /* owned; NULL if the recipe has none (tensor_map.h) */
    fa2i_variant variant;
    int registers;     /* registers of the main step; the driver reports them */
    int local_bytes;   /* local memory of the main step per thread: spills and stack */
    int blocks_per_sm; /* resident blocks of the main step per SM */
} fa2i_loaded;

/* Checks that a card has enough shared memory for each block of a kernel. FA2_E_UNSUPPORTED. */
fa2_status fa2i_loaded_check_card(const fa2i_variant *variant, const fa2i_card *card);

/* Loads an artifact into the device's context and prepares each of its steps for launching (opts in to shared memory,
 * finalises the code). FA2_E_CUDA has the driver's own error. *ret_driver_result (may be NULL) gets its number, so that
 * callers can recognise CUDA_ERROR_NO_BINARY_FOR_GPU. FA2_E_UNSUPPORTED: no SM can hold a block of a step, or a step
 * needs what this driver lacks. FA2_E_COMPILE: the kernel has no code; the message has the compiler's log. */
fa2_status fa2i_load(const fa2i_device *device, const fa2i_kernel *kernel, fa2i_loaded *ret_loaded,
                     CUresult *ret_driver_result);
void fa2i_unload(const fa2i_device *device, fa2i_loaded *loaded); /* zeroed objects are fine */
