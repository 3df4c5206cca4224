/*
 * What the commands that measure must know of a device, and of the compiler for it: read without a
 * context; kernels run in the worker process (worker.h). Thread-safe.
 */
#ifndef FA2I_GPU_H
#define FA2I_GPU_H

#include "runtime/cuda/compile.h"

typedef struct fa2i_gpu {
    int ordinal;
    fa2i_card card;
    int driver; /* 1000 * major + 10 * minor of the CUDA version it serves */
    size_t memory_bytes;
    unsigned char uuid[16];
    bool has_uuid;
    bool modelled; /* the device is software: its times are modelled, and it takes PTX only */
    bool compiles; /* NVRTC is here: target counts */
    fa2i_target target;
} fa2i_gpu;

/* FA2_E_NO_DRIVER, FA2_E_NO_DEVICE, FA2_E_UNSUPPORTED, FA2_E_CUDA. That NVRTC is not here is no error. */
fa2_status fa2i_gpu_read(int ordinal, fa2i_gpu *ret_gpu);

#endif
