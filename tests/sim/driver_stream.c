/*
 * Streams, events, capture and graphs. A graph is the list of works that a stream got during its capture. Launching the
 * graph runs them in order.
 */
#include "driver.h"
#include <stdlib.h>
#include <string.h>
#include "arena.h"

/* ---- streams ---- */

bool sim_stream_is(CUstream handle, sim_stream **ret_stream)
{
    *ret_stream = NULL;
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        return true;
    *ret_stream = sim_object_find(handle, SIM_OBJECT_STREAM);
    return *ret_stream != NULL;
}

/* Finds the stream. Fails if it is being captured. */
static CUresult stream_outside_capture(CUstream handle, sim_stream **ret_stream)
{
    if (!sim_stream_is(handle, ret_stream))
        return CUDA_ERROR_INVALID_HANDLE;
    if (*ret_stream == NULL || (*ret_stream)->capture == NULL)
        return CUDA_SUCCESS;
    (*ret_stream)->capture_broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

SIM_API CUresult CUDAAPI cuStreamCreate(CUstream *out, unsigned flags)
{
    CUresult result = sim_enter(true);
    if (result == CUDA_SUCCESS && flags > CU_STREAM_NON_BLOCKING)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *out = sim_object_add(sizeof(sim_stream), SIM_OBJECT_STREAM);
    return sim_leave(result);
}

static void drop_capture(sim_stream *stream)
{
    if (stream->capture != NULL) {
        sim_graph_clear(stream->capture);
        sim_object_remove(stream->capture);
    }
    stream->capture = NULL;
    stream->capture_broken = false;
}

SIM_API CUresult CUDAAPI cuStreamDestroy(CUstream handle)
{
    CUresult result = sim_enter(false);
    sim_stream *stream = sim_object_anywhere(handle, SIM_OBJECT_STREAM);
    if (result == CUDA_SUCCESS && stream == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
        result = stream->object.device->error;
        drop_capture(stream);
        sim_object_remove(stream);
    }
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuStreamSynchronize(CUstream handle)
{
    sim_stream *stream = NULL;
    sim_wait();
    CUresult result = sim_enter(true);
    if (result == CUDA_SUCCESS)
        result = stream_outside_capture(handle, &stream);
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuCtxSynchronize(void)
{
    sim_wait();
    return sim_leave(sim_enter(true));
}

/* ---- capture ---- */

SIM_API CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    sim_stream *stream = NULL;
    CUresult result = sim_enter(true);
    if (result == CUDA_SUCCESS && !sim_stream_is(handle, &stream))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        *status = stream == NULL || stream->capture == NULL ? CU_STREAM_CAPTURE_STATUS_NONE
                  : stream->capture_broken                  ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                            : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode)
{
    sim_stream *stream = NULL;
    CUresult result = sim_enter(true);
    (void)mode; /* concerns other threads; here they wait for the lock anyway */
    if (result == CUDA_SUCCESS)
        result = stream_outside_capture(handle, &stream);
    if (result == CUDA_SUCCESS && stream == NULL)
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (result == CUDA_SUCCESS)
        stream->capture = sim_object_add(sizeof *stream->capture, SIM_OBJECT_GRAPH);
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *out)
{
    sim_stream *stream = NULL;
    CUresult result = sim_enter(true);
    *out = NULL;
    if (result == CUDA_SUCCESS && (!sim_stream_is(handle, &stream) || stream == NULL))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result != CUDA_SUCCESS)
        return sim_leave(result);
    if (stream->capture == NULL)
        return sim_leave(CUDA_ERROR_ILLEGAL_STATE);
    if (stream->capture_broken) {
        drop_capture(stream);
        return sim_leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    *out = (CUgraph)(void *)stream->capture;
    stream->capture = NULL;
    return sim_leave(CUDA_SUCCESS);
}

static sim_work copy_work(const sim_work *work)
{
    sim_work copy = *work;
    if (work->function != NULL) {
        const size_t bytes = work->function->program.function->param_bytes;
        copy.params = sim_host_memory(bytes + 1);
        memcpy(copy.params, work->params, bytes);
    }
    return copy;
}

static void add_node(sim_graph *graph, const sim_work *work)
{
    if (graph->count == graph->capacity) {
        graph->capacity = graph->capacity == 0 ? 16 : 2 * graph->capacity;
        sim_work *larger = sim_host_memory(graph->capacity * sizeof *larger);
        if (graph->count > 0)
            memcpy(larger, graph->nodes, graph->count * sizeof *larger);
        free(graph->nodes);
        graph->nodes = larger;
    }
    graph->nodes[graph->count++] = copy_work(work);
}

CUresult sim_submit(CUstream handle, const sim_work *work)
{
    sim_stream *stream = NULL;
    if (!sim_stream_is(handle, &stream))
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream == NULL || stream->capture == NULL)
        return sim_do_work(work);
    add_node(stream->capture, work);
    return CUDA_SUCCESS;
}

/* ---- graphs ---- */

void sim_graph_clear(sim_graph *graph)
{
    for (size_t i = 0; i < graph->count; i++)
        free(graph->nodes[i].params);
    free(graph->nodes);
    graph->nodes = NULL;
    graph->count = graph->capacity = 0;
}

SIM_API CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    CUresult result = sim_enter(true);
    const sim_graph *graph = sim_object_find(handle, SIM_OBJECT_GRAPH);
    if (result == CUDA_SUCCESS && (graph == NULL || flags != 0))
        result = graph == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        sim_graph *exec = sim_object_add(sizeof *exec, SIM_OBJECT_GRAPH_EXEC);
        for (size_t i = 0; i < graph->count; i++)
            add_node(exec, &graph->nodes[i]);
        *out = (CUgraphExec)(void *)exec;
    }
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    sim_stream *stream = NULL;
    CUresult result = sim_enter(true);
    const sim_graph *exec = sim_object_find(handle, SIM_OBJECT_GRAPH_EXEC);
    if (result == CUDA_SUCCESS && exec == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = stream_outside_capture(stream_handle, &stream);
    for (size_t i = 0; result == CUDA_SUCCESS && i < exec->count; i++)
        result = sim_do_work(&exec->nodes[i]);
    return sim_leave(result);
}

static CUresult destroy_graph(void *handle, sim_object_kind kind)
{
    CUresult result = sim_enter(false);
    sim_graph *graph = sim_object_anywhere(handle, kind);
    if (result == CUDA_SUCCESS && graph == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
        result = graph->object.device->error;
        sim_graph_clear(graph);
        sim_object_remove(graph);
    }
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle)
{
    return destroy_graph(handle, SIM_OBJECT_GRAPH_EXEC);
}

SIM_API CUresult CUDAAPI cuGraphDestroy(CUgraph handle)
{
    return destroy_graph(handle, SIM_OBJECT_GRAPH);
}

/* ---- events ---- */

SIM_API CUresult CUDAAPI cuEventCreate(CUevent *out, unsigned flags)
{
    CUresult result = sim_enter(true);
    if (result == CUDA_SUCCESS && flags > (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *out = sim_object_add(sizeof(sim_event), SIM_OBJECT_EVENT);
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuEventDestroy(CUevent handle)
{
    CUresult result = sim_enter(false);
    sim_event *event = sim_object_anywhere(handle, SIM_OBJECT_EVENT);
    if (result == CUDA_SUCCESS && event == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
        result = event->object.device->error;
        sim_object_remove(event);
    }
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream stream_handle)
{
    sim_stream *stream = NULL;
    CUresult result = sim_enter(true);
    sim_event *event = sim_object_find(handle, SIM_OBJECT_EVENT);
    if (result == CUDA_SUCCESS && event == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = stream_outside_capture(stream_handle, &stream);
    if (result == CUDA_SUCCESS) {
        event->recorded = true;
        event->at_us = sim_here()->clock_us;
    }
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuEventQuery(CUevent handle)
{
    CUresult result = sim_enter(true);
    if (result == CUDA_SUCCESS && sim_object_find(handle, SIM_OBJECT_EVENT) == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && sim_here()->hung)
        result = CUDA_ERROR_NOT_READY;
    return sim_leave(result);
}

SIM_API CUresult CUDAAPI cuEventSynchronize(CUevent handle)
{
    sim_wait();
    CUresult result = sim_enter(true);
    if (result == CUDA_SUCCESS && sim_object_find(handle, SIM_OBJECT_EVENT) == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    return sim_leave(result);
}

/* fa2 uses the plain name; newer headers redefine it. */
#undef cuEventElapsedTime
SIM_API CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent from_handle, CUevent to_handle);

SIM_API CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent from_handle, CUevent to_handle)
{
    CUresult result = sim_enter(true);
    const sim_event *from = sim_object_find(from_handle, SIM_OBJECT_EVENT);
    const sim_event *to = sim_object_find(to_handle, SIM_OBJECT_EVENT);
    if (result == CUDA_SUCCESS && (from == NULL || to == NULL || !from->recorded || !to->recorded))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        *ms = (float)((to->at_us - from->at_us) / 1000);
    return sim_leave(result);
}
