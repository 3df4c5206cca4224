/*
 * A kernel on the device: an artifact that is loaded, with what the launches of its recipe's steps
 * need side by side.
 */
#ifndef FA2I_CUDA_LOADED_H
#define FA2I_CUDA_LOADED_H

#include "runtime/cuda/device.h"

typedef struct fa2i_loaded_step {
    CUfunction function;
    unsigned threads, smem_bytes;
    unsigned cluster; /* blocks per cluster */
    bool early;       /* begins while the step before is at work, for which its code waits */
} fa2i_loaded_step;

typedef struct fa2i_loaded {
    CUmodule module;
    fa2i_loaded_step steps[FA2I_RECIPE_STEPS]; /* as many as the recipe has */
    struct fa2i_kept_maps *maps; /* owned; NULL where the recipe has none (tensor_map.h) */
    fa2i_variant variant;
    int registers;     /* of the main step, as the driver reports them */
    int local_bytes;   /* likewise; per thread: spills and stack */
    int blocks_per_sm; /* likewise; resident */
} fa2i_loaded;

/* Whether blocks of a kernel have the shared memory that they need on a card. FA2_E_UNSUPPORTED. */
fa2_status fa2i_loaded_check_card(const fa2i_variant *variant, const fa2i_card *card);

/* Load an artifact into the device's context and make each of its steps ready to launch
 * (shared-memory opt-in, code finalised). FA2_E_CUDA, with the driver's own error;
 * *ret_driver_result (may be NULL) gets its number, so that callers can tell
 * CUDA_ERROR_NO_BINARY_FOR_GPU apart. A step that no SM can hold, or that needs what this driver
 * does not have, is FA2_E_UNSUPPORTED. */
fa2_status fa2i_load(const fa2i_device *device, const fa2i_kernel *kernel, fa2i_loaded *ret_loaded,
                     CUresult *ret_driver_result);
void fa2i_unload(const fa2i_device *device, fa2i_loaded *loaded); /* zeroed objects are fine */

#endif
