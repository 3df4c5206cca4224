/*
 * The fake driver's memory, streams, events and graphs.
 *
 * - A device pointer is a host pointer, 256-byte aligned like CUDA's; a copy must lie inside one
 *   allocation, or it is CUDA_ERROR_INVALID_VALUE.
 * - Work is finished at once, unless fake.never_ready; an event holds the clock as it was recorded.
 * - A graph is the list of launches that were captured.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "fake_objects.h"

enum { ALIGNMENT = 256 };

/* ---- memory ---- */

CUresult fake_driver_mem_get_info(size_t *ret_free, size_t *ret_total)
{
    CUresult result = fake_begin("mem_get_info");
    if (result == CUDA_SUCCESS && fake_current() == NULL)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        *ret_total = fake.devices[fake_current()->ordinal].total_bytes;
        *ret_free = *ret_total / 2;
    }
    return fake_end(result);
}

CUresult fake_driver_mem_alloc(CUdeviceptr *ret_pointer, size_t bytes)
{
    CUresult result = fake_begin_uncaptured("mem_alloc");
    if (result == CUDA_SUCCESS && bytes == 0)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return fake_end(result);
    char *block = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (block == NULL)
        return fake_end(CUDA_ERROR_OUT_OF_MEMORY);
    fake_object *memory = fake_new(FAKE_MEMORY);
    memory->block = block;
    memory->bytes = bytes;
    *ret_pointer = (CUdeviceptr)(uintptr_t)block;
    return fake_end(CUDA_SUCCESS);
}

CUresult fake_driver_mem_free(CUdeviceptr pointer)
{
    const CUresult result = fake_begin("mem_free");
    fake_object *memory = fake_memory_at(pointer, 0);
    if (memory == NULL || (uintptr_t)memory->block != pointer)
        return fake_end(CUDA_ERROR_INVALID_VALUE);
    fake_drop(memory);
    return fake_end(result);
}

CUresult fake_driver_memcpy_htod(CUdeviceptr to, const void *from, size_t bytes)
{
    CUresult result = fake_begin_uncaptured("memcpy_htod");
    if (result == CUDA_SUCCESS && fake_memory_at(to, bytes) == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        memcpy((void *)(uintptr_t)to, from, bytes);
    return fake_end(result);
}

CUresult fake_driver_memcpy_dtoh(void *to, CUdeviceptr from, size_t bytes)
{
    CUresult result = fake_begin_uncaptured("memcpy_dtoh");
    if (result == CUDA_SUCCESS && fake_memory_at(from, bytes) == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        memcpy(to, (const void *)(uintptr_t)from, bytes);
    return fake_end(result);
}

CUresult fake_driver_memcpy_dtod(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    CUresult result = fake_begin_uncaptured("memcpy_dtod");
    if (result == CUDA_SUCCESS && (fake_memory_at(to, bytes) == NULL || fake_memory_at(from, bytes) == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return fake_end(result);
}

/* ---- streams ---- */

/* NULL is the default stream, which has no object; anything else must be live. */
static bool is_stream(CUstream handle)
{
    return handle == NULL || fake_find(handle, FAKE_STREAM) != NULL;
}

/* A copy in a graph is not simulated. */
CUresult fake_driver_memcpy_dtoh_async(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CUresult result = fake_begin_uncaptured("memcpy_dtoh_async");
    if (result == CUDA_SUCCESS && !is_stream(stream))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && fake_memory_at(from, bytes) == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        memcpy(to, (const void *)(uintptr_t)from, bytes);
    return fake_end(result);
}

/* Writes one value, then doubles it: a loop over the values is slow under the sanitizers. */
static void fill(char *to, unsigned value, size_t count)
{
    const size_t bytes = count * sizeof value;
    if (count > 0)
        memcpy(to, &value, sizeof value);
    for (size_t done = sizeof value; done < bytes; done *= 2)
        memcpy(to + done, to, done < bytes - done ? done : bytes - done);
}

CUresult fake_driver_memset_d32_async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    CUresult result = fake_begin("memset_d32_async");
    if (result == CUDA_SUCCESS && !is_stream(stream))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && fake_memory_at(to, count * sizeof value) == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        fill((char *)(uintptr_t)to, value, count);
    return fake_end(result);
}

CUresult fake_driver_stream_create(CUstream *ret_stream, unsigned flags)
{
    (void)flags;
    const CUresult result = fake_begin_uncaptured("stream_create");
    if (result == CUDA_SUCCESS)
        *ret_stream = (CUstream)fake_new(FAKE_STREAM);
    return fake_end(result);
}

CUresult fake_driver_stream_destroy(CUstream handle)
{
    const CUresult result = fake_begin("stream_destroy");
    fake_object *stream = fake_find(handle, FAKE_STREAM);
    if (stream == NULL)
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    fake_drop(stream);
    return fake_end(result);
}

CUresult fake_driver_stream_synchronize(CUstream stream)
{
    fake_wait();
    CUresult result = fake_begin_uncaptured("stream_synchronize");
    if (result == CUDA_SUCCESS && !is_stream(stream))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && fake.never_ready)
        result = CUDA_ERROR_LAUNCH_TIMEOUT;
    return fake_end(result);
}

CUresult fake_driver_stream_is_capturing(CUstream handle, CUstreamCaptureStatus *ret_status)
{
    const CUresult result = fake_begin("stream_is_capturing");
    const fake_object *stream = fake_find(handle, FAKE_STREAM);
    if (result == CUDA_SUCCESS && !is_stream(handle))
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    if (result == CUDA_SUCCESS)
        *ret_status =
            stream != NULL && stream->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return fake_end(result);
}

CUresult fake_driver_stream_begin_capture(CUstream handle, CUstreamCaptureMode mode)
{
    (void)mode;
    const CUresult result = fake_begin_uncaptured("stream_begin_capture");
    fake_object *stream = fake_find(handle, FAKE_STREAM);
    if (result != CUDA_SUCCESS)
        return fake_end(result);
    if (stream == NULL) /* the default stream cannot be captured */
        return fake_end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    stream->capturing = true;
    return fake_end(CUDA_SUCCESS);
}

CUresult fake_driver_stream_end_capture(CUstream handle, CUgraph *ret_graph)
{
    const CUresult result = fake_begin("stream_end_capture");
    fake_object *stream = fake_find(handle, FAKE_STREAM);
    if (stream == NULL || !stream->capturing)
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    stream->capturing = false;
    if (result == CUDA_SUCCESS) {
        fake_object *graph = fake_new(FAKE_GRAPH);
        graph->launches = stream->launches;
        graph->launch_count = stream->launch_count;
        *ret_graph = (CUgraph)graph;
    } else {
        free(stream->launches);
    }
    stream->launches = NULL;
    stream->launch_count = 0;
    return fake_end(result);
}

/* ---- events ---- */

CUresult fake_driver_event_create(CUevent *ret_event, unsigned flags)
{
    (void)flags;
    CUresult result = fake_begin("event_create");
    if (result == CUDA_SUCCESS && fake_current() == NULL)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        *ret_event = (CUevent)fake_new(FAKE_EVENT);
    return fake_end(result);
}

CUresult fake_driver_event_destroy(CUevent handle)
{
    const CUresult result = fake_begin("event_destroy");
    fake_object *event = fake_find(handle, FAKE_EVENT);
    if (event == NULL)
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    fake_drop(event);
    return fake_end(result);
}

CUresult fake_driver_event_record(CUevent handle, CUstream stream)
{
    CUresult result = fake_begin("event_record");
    fake_object *event = fake_find(handle, FAKE_EVENT);
    if (result == CUDA_SUCCESS && (event == NULL || !is_stream(stream)))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
        event->time_us = fake_clock_us();
        event->recorded = true;
    }
    return fake_end(result);
}

CUresult fake_driver_event_query(CUevent handle)
{
    CUresult result = fake_begin("event_query");
    if (result == CUDA_SUCCESS && fake_find(handle, FAKE_EVENT) == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && fake.never_ready)
        result = CUDA_ERROR_NOT_READY;
    return fake_end(result);
}

CUresult fake_driver_event_synchronize(CUevent handle)
{
    fake_wait();
    CUresult result = fake_begin_uncaptured("event_synchronize");
    if (result == CUDA_SUCCESS && fake_find(handle, FAKE_EVENT) == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && fake.never_ready)
        result = CUDA_ERROR_LAUNCH_TIMEOUT;
    return fake_end(result);
}

CUresult fake_driver_event_elapsed_time(float *ret_ms, CUevent start_handle, CUevent end_handle)
{
    CUresult result = fake_begin("event_elapsed_time");
    const fake_object *start = fake_find(start_handle, FAKE_EVENT);
    const fake_object *end = fake_find(end_handle, FAKE_EVENT);
    if (result == CUDA_SUCCESS && (start == NULL || end == NULL || !start->recorded || !end->recorded))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && fake.never_ready)
        result = CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS)
        *ret_ms = (float)((end->time_us - start->time_us) / 1000);
    return fake_end(result);
}

/* ---- graphs ---- */

CUresult fake_driver_graph_instantiate(CUgraphExec *ret_exec, CUgraph handle, unsigned long long flags)
{
    (void)flags;
    CUresult result = fake_begin("graph_instantiate");
    const fake_object *graph = fake_find(handle, FAKE_GRAPH);
    if (result == CUDA_SUCCESS && graph == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result != CUDA_SUCCESS)
        return fake_end(result);
    fake_object *exec = fake_new(FAKE_GRAPH_EXEC);
    exec->launches = calloc(graph->launch_count + 1, sizeof *exec->launches);
    assert(exec->launches != NULL);
    exec->launch_count = graph->launch_count;
    for (size_t i = 0; i < graph->launch_count; i++)
        exec->launches[i] = graph->launches[i];
    *ret_exec = (CUgraphExec)exec;
    return fake_end(CUDA_SUCCESS);
}

CUresult fake_driver_graph_launch(CUgraphExec handle, CUstream stream)
{
    CUresult result = fake_begin("graph_launch");
    fake_object *exec = fake_find(handle, FAKE_GRAPH_EXEC);
    if (result == CUDA_SUCCESS && (exec == NULL || !is_stream(stream)))
        result = CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; result == CUDA_SUCCESS && i < exec->launch_count; i++) {
        fake_launch launch = exec->launches[i];
        result = fake_run(&launch);
    }
    return fake_end(result);
}

CUresult fake_driver_graph_exec_destroy(CUgraphExec handle)
{
    const CUresult result = fake_begin("graph_exec_destroy");
    fake_object *exec = fake_find(handle, FAKE_GRAPH_EXEC);
    if (exec == NULL)
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    fake_drop(exec);
    return fake_end(result);
}

CUresult fake_driver_graph_destroy(CUgraph handle)
{
    const CUresult result = fake_begin("graph_destroy");
    fake_object *graph = fake_find(handle, FAKE_GRAPH);
    if (graph == NULL)
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    fake_drop(graph);
    return fake_end(result);
}

/* The fake is not the software device: it has its own times. */
CUresult fake_driver_sim_version(int *version)
{
    const CUresult result = fake_begin("sim_version");
    if (result == CUDA_SUCCESS)
        *version = 0;
    return fake_end(result);
}
