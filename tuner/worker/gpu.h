/*
 * The facts about a device, and about the compiler for it, that measuring commands need. They are read without a
 * context; kernels run in the worker process (worker.h). Thread-safe.
 */
#pragma once

#include "runtime/cuda/compile.h"

typedef struct fa2i_gpu {
    int ordinal;
    fa2i_card card;
    int driver; /* 1000 * major + 10 * minor of the CUDA version that the driver supports */
    size_t memory_bytes;
    unsigned char uuid[16];
    bool has_uuid;
    bool modelled; /* the device is software: its times are modelled, and it takes PTX only */
    bool compiles; /* NVRTC is here, and target is valid */
    fa2i_target target;
} fa2i_gpu;

/* Returns FA2_E_NO_DRIVER, FA2_E_NO_DEVICE, FA2_E_UNSUPPORTED or FA2_E_CUDA. A missing NVRTC is no error. */
fa2_status fa2i_gpu_read(int ordinal, fa2i_gpu *ret_gpu);
