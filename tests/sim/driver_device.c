/*
 * Driver functions about the device and about errors.
 */
#include "driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DRIVER_VERSION = 13000 };

/* ---- errors ---- */

typedef struct error_text {
    CUresult error;
    const char *name, *text;
} error_text;

#define TEXT(error, text)                                                                                              \
    {                                                                                                                  \
        error, #error, text                                                                                            \
    }

static const error_text error_texts[] = {
    TEXT(CUDA_SUCCESS, "no error"),
    TEXT(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    TEXT(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    TEXT(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    TEXT(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    TEXT(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    TEXT(CUDA_ERROR_DEVICE_UNAVAILABLE, "the device is lost"),
    TEXT(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    TEXT(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    TEXT(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    TEXT(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    TEXT(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the PTX is newer than the driver"),
    TEXT(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    TEXT(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    TEXT(CUDA_ERROR_NOT_READY, "device not ready"),
    TEXT(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    TEXT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    TEXT(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    TEXT(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    TEXT(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    TEXT(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    TEXT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    TEXT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture was invalidated by an error"),
    TEXT(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
};

static const error_text *find_text(CUresult error)
{
    for (size_t i = 0; i < sizeof error_texts / sizeof *error_texts; i++)
        if (error_texts[i].error == error)
            return &error_texts[i];
    return NULL;
}

SIM_API CUresult CUDAAPI cuGetErrorName(CUresult error, const char **out)
{
    const error_text *text = find_text(error);
    *out = text == NULL ? NULL : text->name;
    return text == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* For a kernel's error it returns the device's finding, so that programs print it with the error. */
SIM_API CUresult CUDAAPI cuGetErrorString(CUresult error, const char **out)
{
    const error_text *text = find_text(error);
    const bool kernel = error != CUDA_SUCCESS && error == sim_here()->error;
    *out = text == NULL ? NULL : kernel && sim_here()->message[0] != '\0' ? sim_here()->message : text->text;
    return text == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* ---- device ---- */

SIM_API CUresult CUDAAPI cuDriverGetVersion(int *version)
{
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

SIM_API CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    const CUresult result = sim_enter(false);
    *count = sim_the_driver.device_count;
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = sim_enter(false);
    if (result == CUDA_SUCCESS && sim_device_of(ordinal) == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuDeviceGetName(char *name, int bytes, CUdevice handle)
{
    CUresult result = sim_enter(false);
    const sim_device *device = sim_device_of(handle);
    if (result == CUDA_SUCCESS && (device == NULL || bytes < 1))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        snprintf(name, (size_t)bytes, "%s (software device)", device->card->name);
    return sim_leave(result);
}

/* Each process has its own devices, unless FA2_SIM_MACHINE names a machine that several share. */
SIM_API CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice handle)
{
    const char *machine = getenv("FA2_SIM_MACHINE");
    char text[256];
    if (machine != NULL && machine[0] != '\0')
        snprintf(text, sizeof text, "%d %s", (int)handle, machine);
    else
        snprintf(text, sizeof text, "%d of %ld", (int)handle, (long)getpid());
    memset(uuid, 0, sizeof *uuid);
    for (size_t i = 0; text[i] != '\0'; i++) /* every character counts */
        uuid->bytes[i % sizeof uuid->bytes] = (char)(31 * uuid->bytes[i % sizeof uuid->bytes] + text[i]);
    return sim_device_of(handle) == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

static bool attribute_of(const sim_card *card, CUdevice_attribute attribute, int *out)
{
    const struct {
        CUdevice_attribute attribute;
        int64_t value;
    } values[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, card->sm / 10},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, card->sm % 10},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, card->sm_count},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, card->smem_block_bytes},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, card->smem_sm_bytes},
        {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, card->smem_reserved_bytes},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, card->l2_bytes},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, card->clock_khz},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, card->memory_clock_khz},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, card->bus_bits},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, SIM_LANES},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, card->warps * SIM_LANES},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, card->blocks},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].attribute == attribute) {
            *out = (int)values[i].value;
            return true;
        }
    return false;
}

SIM_API CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice handle)
{
    CUresult result = sim_enter(false);
    const sim_device *device = sim_device_of(handle);
    if (result == CUDA_SUCCESS && (device == NULL || !attribute_of(device->card, attribute, value)))
        result = CUDA_ERROR_INVALID_VALUE;
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice handle)
{
    CUresult result = sim_enter(false);
    const sim_device *device = sim_device_of(handle);
    if (result == CUDA_SUCCESS && device == NULL)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS)
        *bytes = device->memory.total_bytes;
    return sim_leave(result);
}
