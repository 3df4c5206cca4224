/*
 * Allocation and copies. A copy need not wait, because all earlier work is finished already.
 */
#include "driver.h"
#include <string.h>
#include "faults.h"

SIM_API CUresult CUDAAPI cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    const CUresult result = sim_enter(true);
    if (result == CUDA_SUCCESS) {
        *total_bytes = sim_here()->memory.total_bytes;
        *free_bytes = sim_here()->memory.total_bytes - sim_here()->memory.used_bytes;
    }
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
    CUresult result = sim_enter(true);
    uint64_t got = 0;
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    if (bytes == 0)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (sim_fault_due(SIM_FAULT_ALLOC) || !sim_memory_get(&sim_here()->memory, bytes, &got))
        return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *address = got;
    return sim_leave(CUDA_SUCCESS);
}

/* Releases memory of any device, even after a sticky error. Then it returns that error. */
static CUresult release(CUdeviceptr address)
{
    for (int i = 0; i < sim_the_driver.device_count; i++)
        if (sim_memory_release(&sim_the_driver.devices[i].memory, address))
            return sim_the_driver.devices[i].error;
    return CUDA_ERROR_INVALID_VALUE;
}

SIM_API CUresult CUDAAPI cuMemFree(CUdeviceptr address)
{
    CUresult result = sim_enter(false);
    if (result == CUDA_SUCCESS && address != 0)
        result = release(address);
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
    sim_wait();
    CUresult result = sim_enter(true);
    uint8_t *at = result == CUDA_SUCCESS ? sim_memory_at(&sim_here()->memory, to, bytes) : NULL;
    if (result == CUDA_SUCCESS && at == NULL && bytes > 0)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (result == CUDA_SUCCESS && bytes > 0)
        memcpy(at, from, bytes);
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
    sim_wait();
    CUresult result = sim_enter(true);
    const uint8_t *at = result == CUDA_SUCCESS ? sim_memory_at(&sim_here()->memory, from, bytes) : NULL;
    if (result == CUDA_SUCCESS && at == NULL && bytes > 0)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (result == CUDA_SUCCESS && bytes > 0)
        memcpy(to, at, bytes);
    return sim_leave(result);
}

/* A copy in a graph is not simulated. */
SIM_API CUresult CUDAAPI cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream handle)
{
    sim_stream *stream = NULL;
    sim_wait();
    CUresult result = sim_enter(true);
    const uint8_t *at = result == CUDA_SUCCESS ? sim_memory_at(&sim_here()->memory, from, bytes) : NULL;
    if (result == CUDA_SUCCESS && !sim_stream_is(handle, &stream))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && stream != NULL && stream->capture != NULL)
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (result == CUDA_SUCCESS && at == NULL && bytes > 0)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (result == CUDA_SUCCESS && bytes > 0)
        memcpy(to, at, bytes);
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    sim_wait();
    CUresult result = sim_enter(true);
    uint8_t *at = result == CUDA_SUCCESS ? sim_memory_at(&sim_here()->memory, to, bytes) : NULL;
    const uint8_t *source = result == CUDA_SUCCESS ? sim_memory_at(&sim_here()->memory, from, bytes) : NULL;
    if (result == CUDA_SUCCESS && (at == NULL || source == NULL) && bytes > 0)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (result == CUDA_SUCCESS && bytes > 0)
        memmove(at, source, bytes);
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    return cuMemcpyDtoD(to, from, bytes);
}

SIM_API CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t words, CUstream stream)
{
    CUresult result = sim_enter(true);
    const sim_work work = {.fill = to, .value = value, .words = words};
    if (result == CUDA_SUCCESS)
        result = sim_submit(stream, &work);
    return sim_leave(result);
}
