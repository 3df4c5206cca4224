/*
 * A CUDA device that is open: its card, and the CUDA context that everything of it lives in.
 *
 * The library never creates a context. It takes the one that is current in the calling thread, so
 * that memory and streams of the host program (PyTorch, the CUDA runtime) are valid, else it retains
 * the primary context. Thread-safe once open.
 */
#ifndef FA2I_DEVICE_H
#define FA2I_DEVICE_H

#include "runtime/base/record.h"
#include "runtime/cuda/cuda_api.h"

typedef struct fa2i_device {
    const fa2i_cuda_table *cuda; /* borrowed */
    fa2i_card card;
    int ordinal;
    int driver; /* 1000 * major + 10 * minor of the CUDA version it serves */
    CUdevice handle;
    CUcontext context;
    bool retained; /* primary context to be released by fa2i_device_close */
} fa2i_device;

/* device_plus_one as in fa2_config. FA2_E_NO_DRIVER, FA2_E_NO_DEVICE (says how many there are),
 * FA2_E_UNSUPPORTED below SM 7.5. */
fa2_status fa2i_device_open(int device_plus_one, fa2i_device *ret_device);
void fa2i_device_close(fa2i_device *device); /* zeroed objects are fine */

/* The card of device `ordinal`, without a context. */
fa2_status fa2i_device_card(const fa2i_cuda_table *cuda, int ordinal, fa2i_card *ret_card);

/* Make the device's context current in this thread; leave undoes it. Leave after every enter that gave
 * FA2_OK, in reverse order. Costs one cheap driver call when the context is current already. */
fa2_status fa2i_device_enter(const fa2i_device *device);
void fa2i_device_leave(const fa2i_device *device);

/* Whether the stream is being captured, or is the default one while another is. The device's context is current. */
fa2_status fa2i_device_is_capturing(const fa2i_device *device, CUstream stream,
                                    bool *ret_capturing);

#endif
