/*
 * Allocation and copies. Copies wait for what was submitted before, which is finished already.
 */
#include "driver.h"
#include <string.h>
#include "faults.h"

#define DRIVER (&sim_the_driver)

SIM_API CUresult CUDAAPI cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    const CUresult result = sim_enter(true);
    if (result == CUDA_SUCCESS) {
        *total_bytes = DRIVER->memory.total_bytes;
        *free_bytes = DRIVER->memory.total_bytes - DRIVER->memory.used_bytes;
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
    if (sim_fault_due(SIM_FAULT_ALLOC) || !sim_memory_get(&DRIVER->memory, bytes, &got))
        return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *address = got;
    return sim_leave(CUDA_SUCCESS);
}

/* Releases also after a sticky error, and then reports that. */
SIM_API CUresult CUDAAPI cuMemFree(CUdeviceptr address)
{
    CUresult result = sim_enter(false);
    if (result == CUDA_SUCCESS)
        result = address == 0 || sim_memory_release(&DRIVER->memory, address)
                     ? DRIVER->error
                     : CUDA_ERROR_INVALID_VALUE;
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
    sim_wait();
    CUresult result = sim_enter(true);
    uint8_t *at = result == CUDA_SUCCESS ? sim_memory_at(&DRIVER->memory, to, bytes) : NULL;
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
    const uint8_t *at = result == CUDA_SUCCESS ? sim_memory_at(&DRIVER->memory, from, bytes) : NULL;
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
    uint8_t *at = result == CUDA_SUCCESS ? sim_memory_at(&DRIVER->memory, to, bytes) : NULL;
    const uint8_t *source =
        result == CUDA_SUCCESS ? sim_memory_at(&DRIVER->memory, from, bytes) : NULL;
    if (result == CUDA_SUCCESS && (at == NULL || source == NULL) && bytes > 0)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (result == CUDA_SUCCESS && bytes > 0)
        memmove(at, source, bytes);
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t words,
                                          CUstream stream)
{
    CUresult result = sim_enter(true);
    const sim_work work = {.fill = to, .value = value, .words = words};
    if (result == CUDA_SUCCESS)
        result = sim_submit(stream, &work);
    return sim_leave(result);
}
