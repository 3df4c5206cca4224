/*
 * The few functions of the CUDA driver API that the example calls, looked up at run time. So the example builds and
 * starts on a machine without a driver. A program that links libcuda or the CUDA runtime does not need this: fa2 takes
 * device pointers and streams from either.
 */
#pragma once

#include <cuda.h>

typedef struct driver {
    CUresult (*init)(unsigned);
    CUresult (*device_get)(CUdevice *, int);
    CUresult (*primary_ctx_retain)(CUcontext *, CUdevice);
    CUresult (*primary_ctx_release)(CUdevice);
    CUresult (*ctx_set_current)(CUcontext);
    CUresult (*ctx_synchronize)(void);
    CUresult (*mem_alloc)(CUdeviceptr *, size_t);
    CUresult (*mem_free)(CUdeviceptr);
    CUresult (*memcpy_htod)(CUdeviceptr, const void *, size_t);
    CUresult (*memcpy_dtoh)(void *, CUdeviceptr, size_t);
} driver;

/* Fills the table, and makes device 0's primary context current in this thread. Returns NULL, or a sentence about what
 * is missing. The caller releases the context of *ret_device if *ret_context is set. */
const char *driver_open(driver *cuda, CUdevice *ret_device, CUcontext *ret_context);
