/*
 * An open CUDA device: its card, and the CUDA context that holds everything loaded on it.
 *
 * The library never creates a context. It takes the context that is current in the calling thread. So memory and
 * streams of the host program (PyTorch, the CUDA runtime) are valid. Without a current context, it retains the primary
 * context. Thread-safe once open.
 */
#pragma once

#include "runtime/base/record.h"
#include "runtime/cuda/cuda_api.h"

typedef struct fa2i_device {
    const fa2i_cuda_table *cuda; /* borrowed */
    fa2i_card card;
    int ordinal;
    int driver; /* the newest CUDA version that the driver supports, 1000 * major + 10 * minor */
    CUdevice handle;
    CUcontext context;
    bool retained; /* fa2i_device_close releases the primary context */
} fa2i_device;

/* Opens a device. device_plus_one: see fa2_config. FA2_E_NO_DRIVER; FA2_E_NO_DEVICE says how many devices there are;
 * FA2_E_UNSUPPORTED below SM 7.5. */
fa2_status fa2i_device_open(int device_plus_one, fa2i_device *ret_device);
void fa2i_device_close(fa2i_device *device); /* zeroed objects are fine */

/* Reads the card of device `ordinal`. Needs no context. */
fa2_status fa2i_device_card(const fa2i_cuda_table *cuda, int ordinal, fa2i_card *ret_card);

/* enter makes the device's context current in this thread; leave undoes that. Call leave after every enter that
 * returned FA2_OK, in reverse order. enter costs one cheap driver call if the context is already current. */
fa2_status fa2i_device_enter(const fa2i_device *device);
void fa2i_device_leave(const fa2i_device *device);

/* Sets *ret_capturing to whether the stream is being captured, or is the default stream while another one is captured.
 * The device's context is current. */
fa2_status fa2i_device_is_capturing(const fa2i_device *device, CUstream stream, bool *ret_capturing);
