/*
 * Launches of the case's kernels: one that is judged, and timed ones.
 */
#include <stdio.h>
#include "runtime/base/alloc.h"
#include "tuner/worker/bench_internal.h"
#include "tuner/worker/nvtx.h"

static fa2_status ready_slot(fa2i_bench *bench, uint32_t id, fa2i_bench_slot **ret_slot)
{
    fa2i_bench_slot *slot;
    fa2_status st;
    if (id >= bench->slot_count || !bench->slots[id].ready)
        return fa2i_fail(FA2_E_INVALID, "kernel %u is not loaded", id);
    if (bench->judge == NULL)
        return fa2i_fail(FA2_E_INVALID, "there is no case");
    slot = &bench->slots[id];
    const fa2_problem *problem = &bench->current.problem;
    FA2_TRY(fa2i_op_of(problem)->grid(&bench->device.card, &slot->loaded.variant.recipe, problem, &slot->grid));
    FA2_TRY(fa2i_bench_give_workspace(bench, slot->grid.workspace_bytes));
    *ret_slot = slot;
done:
    return st;
}

static fa2_status launch(const fa2i_bench *bench, const fa2i_bench_slot *slot)
{
    const fa2i_arguments arguments =
        fa2i_bench_arguments(bench, slot->grid.workspace_bytes > 0 ? bench->workspace_bytes : 0);
    return fa2i_launch(&bench->device, &slot->loaded, &slot->grid, &bench->current.problem, &arguments, bench->stream);
}

fa2_status fa2i_bench_launch(fa2i_bench *bench, uint32_t id, uint32_t *ret_overwritten)
{
    fa2_status st = FA2_OK;
    fa2i_bench_slot *slot = NULL;
    uint32_t overwritten = 0;
    uint32_t *guard = NULL;
    FA2_TRY(fa2i_new(&guard, FA2I_GUARD_BYTES, 1));
    FA2_TRY(ready_slot(bench, id, &slot));
    FA2_TRY(fa2i_bench_poison(bench));
    FA2_TRY(launch(bench, slot));
    FA2_TRY(fa2i_bench_wait(bench, NULL));
    FA2_TRY(fa2i_bench_count_overwritten(bench, slot->grid.workspace_bytes, guard, &overwritten));
    *ret_overwritten = overwritten;
done:
    fa2i_free(guard);
    return st;
}

/* Records the launches into the slot's graph, and runs it once, because the first run of a graph is slow. */
static fa2_status make_graph(fa2i_bench *bench, fa2i_bench_slot *slot, int launches)
{
    fa2_status st = FA2_OK;
    const fa2i_cuda_table *cuda = bench->device.cuda;
    CUgraph graph = NULL;
    if (slot->graph != NULL) /* it has another number of launches */
        (void)cuda->graph_exec_destroy(slot->graph);
    slot->graph = NULL;
    FA2_TRY(fa2i_bench_check(bench, cuda->stream_begin_capture(bench->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                             "cuStreamBeginCapture"));
    fa2_status launched = FA2_OK;
    for (int i = 0; i < launches && launched == FA2_OK; i++)
        launched = launch(bench, slot);
    CUresult ended = cuda->stream_end_capture(bench->stream, &graph); /* also if a launch failed */
    FA2_TRY(launched);
    FA2_TRY(fa2i_bench_check(bench, ended, "cuStreamEndCapture"));
    FA2_TRY(fa2i_bench_check(bench, cuda->graph_instantiate(&slot->graph, graph, 0), "cuGraphInstantiate"));
    slot->graph_launches = launches;
    slot->graph_ms = 0;
    FA2_TRY(fa2i_bench_check(bench, cuda->graph_launch(slot->graph, bench->stream), "cuGraphLaunch"));
    FA2_TRY(fa2i_bench_wait(bench, NULL));
done:
    if (graph != NULL)
        cuda->graph_destroy(graph);
    return st;
}

static fa2_status sample(fa2i_bench *bench, uint32_t id, int launches, fa2i_warmth warmth, double *ret_us)
{
    fa2_status st = FA2_OK;
    const fa2i_cuda_table *cuda = bench->device.cuda;
    fa2i_bench_slot *slot = NULL;
    const bool cold = launches == 1 && warmth == FA2I_WARMTH_COLD;
    float elapsed_ms = 0;
    FA2_TRY(ready_slot(bench, id, &slot));
    if (!cold && (slot->graph == NULL || slot->graph_launches != launches))
        FA2_TRY(make_graph(bench, slot, launches));
    if (cold)
        FA2_TRY(fa2i_bench_check(
            bench, cuda->memset_d32_async(bench->flush, 0, bench->flush_bytes / sizeof(uint32_t), bench->stream),
            "cuMemsetD32Async"));
    if (warmth == FA2I_WARMTH_BUSY && slot->graph_ms <= FA2I_BUSY_MOST_MS)
        FA2_TRY(fa2i_bench_check(bench, cuda->graph_launch(slot->graph, bench->stream), "cuGraphLaunch"));
    FA2_TRY(fa2i_bench_check(bench, cuda->event_record(bench->begin, bench->stream), "cuEventRecord"));
    if (cold)
        FA2_TRY(launch(bench, slot));
    else
        FA2_TRY(fa2i_bench_check(bench, cuda->graph_launch(slot->graph, bench->stream), "cuGraphLaunch"));
    FA2_TRY(fa2i_bench_check(bench, cuda->event_record(bench->end, bench->stream), "cuEventRecord"));
    FA2_TRY(fa2i_bench_wait(bench, bench->end));
    FA2_TRY(
        fa2i_bench_check(bench, cuda->event_elapsed_time(&elapsed_ms, bench->begin, bench->end), "cuEventElapsedTime"));
    slot->graph_ms = elapsed_ms;
    *ret_us = (double)elapsed_ms * 1e3 / launches;
done:
    return st;
}

/* The name of the range that a profiler shows: the problem and the kernel. */
static void name_range(const fa2i_bench *bench, uint32_t id, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "fa2 %s | %s",
             bench->judge == NULL ? "" : fa2i_problem_shape(&bench->current.problem).text,
             id < bench->slot_count && bench->slots[id].ready ? bench->slots[id].loaded.variant.text : "");
}

fa2_status fa2i_bench_sample(fa2i_bench *bench, uint32_t id, int launches, fa2i_warmth warmth, double *ret_us)
{
    char range[FA2I_PROBLEM_CHARS + FA2I_VARIANT_CHARS + 16];
    name_range(bench, id, range, sizeof range);
    fa2i_nvtx_begin(range);
    const fa2_status st = sample(bench, id, launches, warmth, ret_us);
    fa2i_nvtx_end();
    return st;
}
