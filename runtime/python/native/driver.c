/*
 * The few functions of the CUDA driver that the package needs beside fa2.h: from the same library that
 * fa2 found, by the same names. They are looked for when first used, which is after fa2 opened a device.
 */
#include <dlfcn.h>
#include <string.h>
#include "native.h"
#include "runtime/base/environment.h"

typedef struct driver {
    bool looked, complete;
    int (*device_get)(int *, int);
    int (*primary_ctx_retain)(void **, int);
    int (*primary_ctx_release)(int);
    int (*ctx_push)(void *);
    int (*ctx_pop)(void **);
    int (*ctx_synchronize)(void);
    int (*stream_is_capturing)(void *, int *);
    int (*mem_alloc)(uint64_t *, size_t);
    int (*mem_free)(uint64_t);
} driver;

static driver *get_driver(void)
{
    static driver cuda; /* under the GIL */
    const struct {
        const char *name;
        void *field;
    } functions[] = {
        {"cuDeviceGet", &cuda.device_get},
        {"cuDevicePrimaryCtxRetain", &cuda.primary_ctx_retain},
        {"cuDevicePrimaryCtxRelease_v2", &cuda.primary_ctx_release},
        {"cuCtxPushCurrent_v2", &cuda.ctx_push},
        {"cuCtxPopCurrent_v2", &cuda.ctx_pop},
        {"cuCtxSynchronize", &cuda.ctx_synchronize},
        {"cuStreamIsCapturing", &cuda.stream_is_capturing},
        {"cuMemAlloc_v2", &cuda.mem_alloc},
        {"cuMemFree_v2", &cuda.mem_free},
    };
    if (cuda.looked)
        return cuda.complete ? &cuda : NULL;

    const char *only = fa2i_environment("FA2_CUDA_LIBRARY");
    void *library = NULL;
    if (only != NULL)
        library = dlopen(only, RTLD_NOW | RTLD_LOCAL);
    else if ((library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) == NULL)
        library = dlopen("/usr/lib/wsl/lib/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    cuda.looked = true;
    cuda.complete = library != NULL;
    for (size_t i = 0; cuda.complete && i < sizeof functions / sizeof *functions; i++) {
        void *address = dlsym(library, functions[i].name);
        cuda.complete = address != NULL;
        /* ISO C has no conversion from void * to a function pointer; POSIX makes them alike. */
        memcpy(functions[i].field, &address, sizeof address);
    }
    return cuda.complete ? &cuda : NULL;
}

/* The device's primary context is current until leave. */
static bool enter(driver *cuda, int device, int *ret_handle)
{
    void *context = NULL;
    if (cuda->device_get(ret_handle, device) != 0 ||
        cuda->primary_ctx_retain(&context, *ret_handle) != 0)
        return false;
    if (cuda->ctx_push(context) == 0)
        return true;
    (void)cuda->primary_ctx_release(*ret_handle);
    return false;
}

static void leave(driver *cuda, int handle)
{
    void *popped = NULL;
    (void)cuda->ctx_pop(&popped);
    (void)cuda->primary_ctx_release(handle);
}

void fa2py_synchronize(int device)
{
    int handle = 0;
    driver *cuda = get_driver();
    if (cuda == NULL || !enter(cuda, device, &handle))
        return;
    Py_BEGIN_ALLOW_THREADS(void) cuda->ctx_synchronize();
    Py_END_ALLOW_THREADS leave(cuda, handle);
}

bool fa2py_is_capturing(void *stream)
{
    /* Asked about the default stream while another is capturing, the driver answers by this error. */
    enum { CAPTURE_IMPLICIT = 906 };
    int status = 0;
    driver *cuda = get_driver();
    if (cuda == NULL)
        return false;
    const int result = cuda->stream_is_capturing(stream, &status);
    return result == CAPTURE_IMPLICIT || (result == 0 && status != 0);
}

uint64_t fa2py_allocate(int device, size_t bytes)
{
    int handle = 0;
    uint64_t address = 0;
    driver *cuda = get_driver();
    if (cuda == NULL || !enter(cuda, device, &handle))
        return 0;
    if (cuda->mem_alloc(&address, bytes) != 0)
        address = 0;
    leave(cuda, handle);
    return address;
}

void fa2py_free(int device, uint64_t address)
{
    int handle = 0;
    driver *cuda = get_driver();
    if (address == 0 || cuda == NULL || !enter(cuda, device, &handle))
        return;
    (void)cuda->mem_free(address);
    leave(cuda, handle);
}
