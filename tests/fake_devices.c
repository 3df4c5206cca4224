/*
 * The fake driver's errors, devices and contexts. A CUdevice is not its ordinal here, so that code
 * which takes one for the other fails; the primary context of a device lives while it is retained.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "fake_objects.h"

enum { HANDLE_OFFSET = 100 };

/* ---- errors ---- */

CUresult fake_driver_get_error_name(CUresult error, const char **ret_name)
{
    static const struct {
        CUresult error;
        const char *name;
    } known[] = {
#define KNOWN(error) {error, #error}
        KNOWN(CUDA_SUCCESS),
        KNOWN(CUDA_ERROR_INVALID_VALUE),
        KNOWN(CUDA_ERROR_OUT_OF_MEMORY),
        KNOWN(CUDA_ERROR_NO_DEVICE),
        KNOWN(CUDA_ERROR_INVALID_DEVICE),
        KNOWN(CUDA_ERROR_INVALID_IMAGE),
        KNOWN(CUDA_ERROR_INVALID_CONTEXT),
        KNOWN(CUDA_ERROR_NO_BINARY_FOR_GPU),
        KNOWN(CUDA_ERROR_INVALID_PTX),
        KNOWN(CUDA_ERROR_INVALID_HANDLE),
        KNOWN(CUDA_ERROR_NOT_FOUND),
        KNOWN(CUDA_ERROR_NOT_READY),
        KNOWN(CUDA_ERROR_ILLEGAL_ADDRESS),
        KNOWN(CUDA_ERROR_LAUNCH_TIMEOUT),
        KNOWN(CUDA_ERROR_LAUNCH_FAILED),
        KNOWN(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        KNOWN(CUDA_ERROR_UNKNOWN),
#undef KNOWN
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].error == error) {
            *ret_name = known[i].name;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_driver_get_error_string(CUresult error, const char **ret_text)
{
    (void)error;
    *ret_text = "said by the fake driver";
    return CUDA_SUCCESS;
}

/* ---- devices ---- */

CUresult fake_driver_init(unsigned flags)
{
    const CUresult result = fake_begin("init");
    return fake_end(result == CUDA_SUCCESS && flags != 0 ? CUDA_ERROR_INVALID_VALUE : result);
}

CUresult fake_driver_driver_get_version(int *ret_version)
{
    const CUresult result = fake_begin("driver_get_version");
    if (result == CUDA_SUCCESS)
        *ret_version = fake.driver_version;
    return fake_end(result);
}

CUresult fake_driver_device_get_count(int *ret_count)
{
    const CUresult result = fake_begin("device_get_count");
    if (result == CUDA_SUCCESS)
        *ret_count = fake.device_count;
    return fake_end(result);
}

static fake_device *device_of(CUdevice handle)
{
    const int ordinal = handle - HANDLE_OFFSET;
    return ordinal >= 0 && ordinal < fake.device_count ? &fake.devices[ordinal] : NULL;
}

CUresult fake_driver_device_get(CUdevice *ret_device, int ordinal)
{
    CUresult result = fake_begin("device_get");
    if (result == CUDA_SUCCESS && device_of(ordinal + HANDLE_OFFSET) == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS)
        *ret_device = ordinal + HANDLE_OFFSET;
    return fake_end(result);
}

CUresult fake_driver_device_get_name(char *out, int bytes, CUdevice handle)
{
    CUresult result = fake_begin("device_get_name");
    const fake_device *device = device_of(handle);
    if (result == CUDA_SUCCESS && device == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS)
        snprintf(out, (size_t)bytes, "%s", device->name);
    return fake_end(result);
}

/* Each process has its own devices. */
CUresult fake_driver_device_get_uuid(CUuuid *out, CUdevice handle)
{
    const fake_device *device = device_of(handle);
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    const long numbers[2] = {(long)getpid(), handle};
    memcpy(out->bytes, numbers, sizeof out->bytes);
    return CUDA_SUCCESS;
}

static int attribute_of(const fake_device *device, CUdevice_attribute attribute)
{
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return device->arch / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return device->arch % 10;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return device->sm_count;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return device->smem_block_bytes;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return device->smem_sm_bytes;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        return device->l2_bytes;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return device->clock_khz;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        return device->memory_clock_khz;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        return device->bus_bits;
    default:
        return -1;
    }
}

CUresult fake_driver_device_get_attribute(int *ret_value, CUdevice_attribute attribute, CUdevice handle)
{
    CUresult result = fake_begin("device_get_attribute");
    const fake_device *device = device_of(handle);
    if (result == CUDA_SUCCESS && device == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS) {
        const int value = attribute_of(device, attribute);
        if (value < 0)
            result = CUDA_ERROR_INVALID_VALUE;
        else
            *ret_value = value;
    }
    return fake_end(result);
}

CUresult fake_driver_device_total_mem(size_t *ret_bytes, CUdevice handle)
{
    CUresult result = fake_begin("device_total_mem");
    const fake_device *device = device_of(handle);
    if (result == CUDA_SUCCESS && device == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS)
        *ret_bytes = device->total_bytes;
    return fake_end(result);
}

/* ---- contexts ---- */

CUresult fake_driver_primary_ctx_retain(CUcontext *ret_context, CUdevice handle)
{
    CUresult result = fake_begin("primary_ctx_retain");
    if (result == CUDA_SUCCESS && device_of(handle) == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS) {
        fake_object *context = fake_primary(handle - HANDLE_OFFSET);
        if (context == NULL) {
            context = fake_new(FAKE_CONTEXT);
            context->primary = true;
            context->ordinal = handle - HANDLE_OFFSET;
        }
        context->retained++;
        *ret_context = (CUcontext)context;
    }
    return fake_end(result);
}

CUresult fake_driver_primary_ctx_release(CUdevice handle)
{
    const CUresult result = fake_begin("primary_ctx_release");
    fake_object *context = fake_primary(handle - HANDLE_OFFSET);
    if (context == NULL)
        return fake_end(CUDA_ERROR_INVALID_CONTEXT);
    if (--context->retained == 0)
        fake_drop(context);
    return fake_end(result);
}

CUresult fake_driver_ctx_get_current(CUcontext *ret_context)
{
    const CUresult result = fake_begin("ctx_get_current");
    if (result == CUDA_SUCCESS)
        *ret_context = (CUcontext)fake_current();
    return fake_end(result);
}

CUresult fake_driver_ctx_get_device(CUdevice *ret_device)
{
    CUresult result = fake_begin("ctx_get_device");
    const fake_object *context = fake_current();
    if (result == CUDA_SUCCESS && context == NULL)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        *ret_device = context->ordinal + HANDLE_OFFSET;
    return fake_end(result);
}

CUresult fake_driver_ctx_push_current(CUcontext handle)
{
    CUresult result = fake_begin("ctx_push_current");
    fake_object *context = fake_find(handle, FAKE_CONTEXT);
    if (result == CUDA_SUCCESS && (context == NULL || !fake_push(context)))
        result = CUDA_ERROR_INVALID_CONTEXT;
    return fake_end(result);
}

CUresult fake_driver_ctx_pop_current(CUcontext *ret_context)
{
    const CUresult result = fake_begin("ctx_pop_current");
    fake_object *context = fake_pop();
    if (context == NULL)
        return fake_end(CUDA_ERROR_INVALID_CONTEXT);
    *ret_context = (CUcontext)context;
    return fake_end(result);
}

CUresult fake_driver_ctx_synchronize(void)
{
    fake_wait();
    const CUresult result = fake_begin_uncaptured("ctx_synchronize");
    return fake_end(result == CUDA_SUCCESS && fake.never_ready ? CUDA_ERROR_LAUNCH_TIMEOUT : result);
}
