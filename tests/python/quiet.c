/*
 * What host_cost.py --quiet measures with: a driver whose launches do nothing, the rest of it the software device's,
 * which this is linked with; and PyTorch's tensors on the host given out as a device's.
 */
#include <stddef.h>
#include "runtime/python/native/dlpack.h"

int cuLaunchKernel(void *function, ...);
int cuLaunchKernelEx(const void *config, ...);
int cuLaunchKernel(void *function, ...)
{
    return function == NULL;
}

int cuLaunchKernelEx(const void *config, ...)
{
    return config == NULL;
}

enum { DL_CPU = 1 };
static const dl_exchange *host;
static dl_exchange device;

/* One of one dimension is a workspace, which begins at a multiple of 256 bytes, as CUDA's memory does. */
static int allocate(dl_tensor *prototype, dl_managed_versioned **ret_tensor, void *context,
                    void (*set_error)(void *, const char *, const char *))
{
    const uintptr_t align = prototype->ndim == 1 ? 256 : 1;
    int64_t bytes = prototype->shape[0] + (int64_t)align;
    dl_tensor on_host = *prototype;
    on_host.device.type = DL_CPU;
    if (align > 1)
        on_host.shape = &bytes;
    const int result = host->allocate(&on_host, ret_tensor, context, set_error);
    if (result != 0)
        return result;
    dl_tensor *made = &(*ret_tensor)->tensor;
    made->data = (void *)(((uintptr_t)made->data + align - 1) & ~(align - 1));
    made->device = prototype->device;
    return 0;
}

static int from_object(void *object, dl_managed_versioned **ret_tensor)
{
    const int result = host->from_object(object, ret_tensor);
    if (result == 0)
        (*ret_tensor)->tensor.device = (dl_device){DL_CUDA, 0};
    return result;
}

static int to_object(dl_managed_versioned *tensor, void **ret_object)
{
    tensor->tensor.device = (dl_device){DL_CPU, 0};
    return host->to_object(tensor, ret_object);
}

static int view_object(void *object, dl_tensor *ret_view)
{
    const int result = host->view_object(object, ret_view);
    ret_view->device = (dl_device){DL_CUDA, 0};
    return result;
}

static int current_stream(int32_t type, int32_t id, void **ret_stream)
{
    *ret_stream = NULL;
    return type != DL_CUDA || id != 0;
}

/* The table for the host's tensors as one for a device's. */
const dl_exchange *quiet_exchange(const dl_exchange *of_host);
const dl_exchange *quiet_exchange(const dl_exchange *of_host)
{
    host = of_host;
    device = (dl_exchange){of_host->header, allocate, from_object, to_object, view_object, current_stream};
    return &device;
}
