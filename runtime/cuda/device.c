/*
 * Opens a device: its handle, its card, its context.
 *
 * - fa2i_device_close releases a retained primary context. A context of the host program is borrowed, and must outlive
 *   the device.
 * - enter pushes only if another context is current. A per-thread stack of bits remembers that, so leave needs neither
 *   an argument nor a driver call.
 */
#include <assert.h>
#include <stdio.h>
#include "runtime/cuda/device.h"

enum { ARCH_MIN = 75, NAME_BYTES = 128, NESTING_MAX = 64 };

/* Bit 0 is the innermost enter of this thread: 1 if it pushed. */
static _Thread_local uint64_t pushed;
static _Thread_local int nesting;

typedef struct attribute {
    CUdevice_attribute id;
    const char *name;
    int *value;
} attribute;

static fa2_status read_attributes(const fa2i_cuda_table *cuda, CUdevice handle, const attribute *attributes,
                                  size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const fa2_status st = fa2i_cuda_check(
            cuda, cuda->device_get_attribute(attributes[i].value, attributes[i].id, handle), attributes[i].name);
        if (st != FA2_OK)
            return st;
    }
    return FA2_OK;
}

static fa2_status read_card(const fa2i_cuda_table *cuda, CUdevice handle, fa2i_card *ret_card)
{
    fa2_status st = FA2_OK;
    fa2i_card card = {0};
    int major = 0, minor = 0, l2_bytes = 0, memory_khz = 0, bus_bits = 0;
    const attribute attributes[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "compute capability", &major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, "compute capability", &minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "SM count", &card.sm_count},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, "shared memory per block", &card.smem_block_bytes},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, "shared memory per SM", &card.smem_sm_bytes},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, "L2 size", &l2_bytes},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, "clock rate", &card.clock_khz},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, "memory clock rate", &memory_khz},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, "memory bus width", &bus_bits},
    };
    _Static_assert(sizeof card.name == NAME_BYTES, "the name's buffer is passed as an int");

    FA2_TRY(fa2i_cuda_check(cuda, cuda->device_get_name(card.name, NAME_BYTES, handle), "cuDeviceGetName"));
    FA2_TRY(read_attributes(cuda, handle, attributes, sizeof attributes / sizeof *attributes));
    card.arch = 10 * major + minor;
    card.generic = cuda->tensor_map_encode_tiled == NULL;
    card.l2_bytes = l2_bytes;
    /* Two transfers per clock. 0 if the driver reports no memory clock. */
    card.bandwidth_bytes = (int64_t)2 * memory_khz * 1000 * bus_bits / 8;
    *ret_card = card;
done:
    return st;
}

/* Finds the handle of device `ordinal`. FA2_E_NO_DEVICE says how many devices there are. */
static fa2_status find_device(const fa2i_cuda_table *cuda, int ordinal, CUdevice *ret_handle)
{
    int count = 0;
    const fa2_status st = fa2i_cuda_check(cuda, cuda->device_get_count(&count), "cuDeviceGetCount");
    if (st != FA2_OK)
        return st;
    if (count == 0)
        return fa2i_fail(FA2_E_NO_DEVICE, "the CUDA driver sees no device");
    if (ordinal < 0 || ordinal >= count)
        return fa2i_fail(FA2_E_NO_DEVICE, "there is no CUDA device %d: there %s %d, counted from 0", ordinal,
                         count == 1 ? "is" : "are", count);
    return fa2i_cuda_check(cuda, cuda->device_get(ret_handle, ordinal), "cuDeviceGet");
}

fa2_status fa2i_device_card(const fa2i_cuda_table *cuda, int ordinal, fa2i_card *ret_card)
{
    CUdevice handle = 0;
    const fa2_status st = find_device(cuda, ordinal, &handle);
    return st != FA2_OK ? st : read_card(cuda, handle, ret_card);
}

/* Borrows the context that is current in this thread, if there is one. */
static fa2_status borrow_current(fa2i_device *device)
{
    const fa2i_cuda_table *cuda = device->cuda;
    fa2_status st = FA2_OK;
    int count = 0;
    CUdevice candidate = 0;
    FA2_TRY(fa2i_cuda_check(cuda, cuda->ctx_get_current(&device->context), "cuCtxGetCurrent"));
    if (device->context == NULL)
        goto done;
    FA2_TRY(fa2i_cuda_check(cuda, cuda->ctx_get_device(&device->handle), "cuCtxGetDevice"));
    FA2_TRY(fa2i_cuda_check(cuda, cuda->device_get_count(&count), "cuDeviceGetCount"));
    for (device->ordinal = 0; device->ordinal < count; device->ordinal++) {
        FA2_TRY(fa2i_cuda_check(cuda, cuda->device_get(&candidate, device->ordinal), "cuDeviceGet"));
        if (candidate == device->handle)
            goto done;
    }
    st = fa2i_fail(FA2_E_NO_DEVICE, "the current CUDA context belongs to none of the %d devices", count);
done:
    return st;
}

fa2_status fa2i_device_open(int device_plus_one, fa2i_device *ret_device)
{
    fa2_status st = FA2_OK;
    fa2i_device device = {0};
    FA2_TRY(fa2i_cuda_get(&device.cuda));
    const fa2i_cuda_table *cuda = device.cuda;
    FA2_TRY(fa2i_cuda_check(cuda, cuda->driver_get_version(&device.driver), "cuDriverGetVersion"));
    if (device_plus_one == 0)
        FA2_TRY(borrow_current(&device));
    if (device.context == NULL) {
        device.ordinal = device_plus_one == 0 ? 0 : device_plus_one - 1;
        FA2_TRY(find_device(cuda, device.ordinal, &device.handle));
    }
    FA2_TRY(read_card(cuda, device.handle, &device.card));
    if (device.card.arch < ARCH_MIN)
        FA2_TRY(fa2i_fail(FA2_E_UNSUPPORTED, "device %d (%s) has compute capability %d.%d; fa2 needs %d.%d or newer",
                          device.ordinal, device.card.name, device.card.arch / 10, device.card.arch % 10, ARCH_MIN / 10,
                          ARCH_MIN % 10));
    if (device.context == NULL) {
        FA2_TRY(fa2i_cuda_check(cuda, cuda->primary_ctx_retain(&device.context, device.handle),
                                "cuDevicePrimaryCtxRetain"));
        device.retained = true;
    }
    *ret_device = device;
done:
    return st;
}

void fa2i_device_close(fa2i_device *device)
{
    if (device->retained)
        (void)device->cuda->primary_ctx_release(device->handle);
    *device = (fa2i_device){0};
}

fa2_status fa2i_device_enter(const fa2i_device *device)
{
    const fa2i_cuda_table *cuda = device->cuda;
    CUcontext current = NULL;
    fa2_status st = FA2_OK;
    assert(nesting < NESTING_MAX);

    FA2_TRY(fa2i_cuda_check(cuda, cuda->ctx_get_current(&current), "cuCtxGetCurrent"));
    if (current != device->context)
        FA2_TRY(fa2i_cuda_check(cuda, cuda->ctx_push_current(device->context), "cuCtxPushCurrent"));
    pushed = pushed << 1 | (current != device->context);
    nesting++;
done:
    return st;
}

void fa2i_device_leave(const fa2i_device *device)
{
    CUcontext popped = NULL;
    assert(nesting > 0);
    if (pushed & 1)
        (void)device->cuda->ctx_pop_current(&popped);
    pushed >>= 1;
    nesting--;
}

fa2_status fa2i_device_is_capturing(const fa2i_device *device, CUstream stream, bool *ret_capturing)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = device->cuda->stream_is_capturing(stream, &status);
    /* the driver's answer for the default stream while another stream captures */
    const bool implicit = result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (result != CUDA_SUCCESS && !implicit)
        return fa2i_cuda_check(device->cuda, result, "cuStreamIsCapturing");
    *ret_capturing = implicit || status != CU_STREAM_CAPTURE_STATUS_NONE;
    return FA2_OK;
}
