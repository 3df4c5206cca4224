#include "driver.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

static const char *load(driver *cuda)
{
    /* Exact exported names: cuMemAlloc without _v2 would be the old 32-bit function. */
    static const struct {
        const char *symbol;
        size_t offset;
    } functions[] = {
        {"cuInit", offsetof(driver, init)},
        {"cuDeviceGet", offsetof(driver, device_get)},
        {"cuDevicePrimaryCtxRetain", offsetof(driver, primary_ctx_retain)},
        {"cuDevicePrimaryCtxRelease_v2", offsetof(driver, primary_ctx_release)},
        {"cuCtxSetCurrent", offsetof(driver, ctx_set_current)},
        {"cuCtxSynchronize", offsetof(driver, ctx_synchronize)},
        {"cuMemAlloc_v2", offsetof(driver, mem_alloc)},
        {"cuMemFree_v2", offsetof(driver, mem_free)},
        {"cuMemcpyHtoD_v2", offsetof(driver, memcpy_htod)},
        {"cuMemcpyDtoH_v2", offsetof(driver, memcpy_dtoh)},
    };
    const char *path = getenv("FA2_CUDA_LIBRARY"); /* like libfa2, because both must use one driver */
    void *library = dlopen(path == NULL ? "libcuda.so.1" : path,
                           RTLD_NOW | RTLD_LOCAL); /* never closed, because a driver cannot be unloaded */
    if (library == NULL)
        return "the CUDA driver cannot be loaded";
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void **entry = (void **)((char *)cuda + functions[i].offset);
        *entry = dlsym(library, functions[i].symbol);
        if (*entry == NULL)
            return functions[i].symbol;
    }
    return NULL;
}

const char *driver_open(driver *cuda, CUdevice *ret_device, CUcontext *ret_context)
{
    const char *missing = load(cuda);
    if (missing != NULL)
        return missing;
    if (cuda->init(0) != CUDA_SUCCESS || cuda->device_get(ret_device, 0) != CUDA_SUCCESS ||
        cuda->primary_ctx_retain(ret_context, *ret_device) != CUDA_SUCCESS ||
        cuda->ctx_set_current(*ret_context) != CUDA_SUCCESS)
        return "the primary context of device 0 cannot be used";
    return NULL;
}
