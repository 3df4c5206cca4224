/*
 * The functions of the CUDA driver that the package needs beside fa2.h. They come from the library that fa2 itself
 * opened. They are looked up at the first use, which is after fa2 opened a device.
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
    int (*memset_async)(uint64_t, unsigned, size_t, void *);
    int (*copy_async)(uint64_t, uint64_t, size_t, void *);
} driver;

static driver *get_driver(void)
{
    static driver cuda; /* protected by the GIL */
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
        /* only calls without queries or keys need the rest */
        {"cuMemsetD32Async", &cuda.memset_async},
        {"cuMemcpyDtoDAsync_v2", &cuda.copy_async},
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
        cuda.complete =
            address != NULL || functions[i].field == &cuda.memset_async || functions[i].field == &cuda.copy_async;
        /* ISO C does not convert void * to a function pointer, but POSIX gives both one representation. */
        memcpy(functions[i].field, &address, sizeof address);
    }
    return cuda.complete ? &cuda : NULL;
}

/* Makes the device's primary context current until leave. */
static bool enter(driver *cuda, int device, int *ret_handle)
{
    void *context = NULL;
    if (cuda->device_get(ret_handle, device) != 0 || cuda->primary_ctx_retain(&context, *ret_handle) != 0)
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
    /* The driver's answer about the default stream while another stream is capturing. */
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

static bool succeeded(const char *function, int result)
{
    if (result != 0)
        PyErr_Format(fa2py_error, "%s: CUDA error %d", function, result);
    return result == 0;
}

/* Enqueues work on a stream of the device. */
static bool submit(int device, bool (*work)(driver *cuda, const fa2py_fill *fill), const fa2py_fill *fill)
{
    int handle = 0;
    driver *cuda = get_driver();
    if (!fa2py_check_process())
        return false;
    if (cuda == NULL || cuda->memset_async == NULL || cuda->copy_async == NULL || !enter(cuda, device, &handle))
        return fa2py_refuse(fa2py_error, "there is no CUDA driver, or no device %d", device);
    const bool ok = work(cuda, fill);
    leave(cuda, handle);
    return ok;
}

static bool set_words(driver *cuda, const fa2py_fill *fill)
{
    return succeeded("cuMemsetD32Async", cuda->memset_async(fill->address, fill->word, fill->words, fill->stream));
}

/* Copies the first `words`. Then doubles the copied part until it is complete. */
static bool repeat_words(driver *cuda, const fa2py_fill *fill)
{
    int result = 0;
    if (fill->from != fill->address)
        result = cuda->copy_async(fill->address, fill->from, fill->words * 4, fill->stream);
    for (size_t have = fill->words; result == 0 && have < fill->total;) {
        const size_t more = have < fill->total - have ? have : fill->total - have;
        result = cuda->copy_async(fill->address + have * 4, fill->address, more * 4, fill->stream);
        have += more;
    }
    return succeeded("cuMemcpyDtoDAsync", result);
}

bool fa2py_set(int device, const fa2py_fill *fill)
{
    return fill->words == 0 || submit(device, set_words, fill);
}

bool fa2py_repeat(int device, const fa2py_fill *fill)
{
    return fill->words == 0 || submit(device, repeat_words, fill);
}
