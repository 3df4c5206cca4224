/*
 * The device of the worker process: its stream, its kernels, and the release of its memory. Everything runs on one
 * stream, which also waits for copies on the NULL stream.
 *
 * Graphs hold device pointers of the case and of the workspace. So they are destroyed together with either of these.
 */
#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/worker/bench_internal.h"

fa2_status fa2i_bench_check(fa2i_bench *bench, CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS)
        bench->result = result;
    return fa2i_cuda_check(bench->device.cuda, result, what);
}

fa2_status fa2i_bench_wait(fa2i_bench *bench, CUevent event)
{
    const fa2i_cuda_table *cuda = bench->device.cuda;
    fa2i_watch_begin(bench->watch, bench->patience_s);
    const CUresult result = event != NULL ? cuda->event_synchronize(event) : cuda->stream_synchronize(bench->stream);
    fa2i_watch_end(bench->watch);
    return fa2i_bench_check(bench, result, "the kernel");
}

fa2_status fa2i_bench_open(fa2i_bench *bench, int ordinal)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_device_open(ordinal + 1, &bench->device));
    FA2_TRY(fa2i_device_enter(&bench->device));
    bench->entered = true;
    const fa2i_cuda_table *cuda = bench->device.cuda;
    FA2_TRY(fa2i_bench_check(bench, cuda->stream_create(&bench->stream, CU_STREAM_DEFAULT), "cuStreamCreate"));
    FA2_TRY(fa2i_bench_check(bench, cuda->event_create(&bench->begin, CU_EVENT_DEFAULT), "cuEventCreate"));
    FA2_TRY(fa2i_bench_check(bench, cuda->event_create(&bench->end, CU_EVENT_DEFAULT), "cuEventCreate"));
    /* More than twice the L2, because its sets do not fill evenly. */
    bench->flush_bytes = (size_t)bench->device.card.l2_bytes * 9 / 4 + (1u << 20);
    bench->flush_bytes -= bench->flush_bytes % 4;
    FA2_TRY(fa2i_bench_check(bench, cuda->mem_alloc(&bench->flush, bench->flush_bytes), "cuMemAlloc"));
done:
    return st;
}

static void drop_graphs(fa2i_bench *bench)
{
    for (size_t i = 0; i < bench->slot_count; i++) {
        if (bench->slots[i].graph != NULL)
            bench->device.cuda->graph_exec_destroy(bench->slots[i].graph);
        bench->slots[i].graph = NULL;
    }
}

void fa2i_bench_drop_workspace(fa2i_bench *bench)
{
    drop_graphs(bench);
    if (bench->workspace != 0)
        bench->device.cuda->mem_free(bench->workspace);
    bench->workspace = 0;
    bench->workspace_bytes = 0;
}

void fa2i_bench_drop_case(fa2i_bench *bench)
{
    fa2i_bench_drop_workspace(bench);
    for (size_t i = 0; i < FA2I_OPERANDS_MAX; i++) {
        if (bench->operands[i] != 0)
            bench->device.cuda->mem_free(bench->operands[i]);
        bench->operands[i] = 0;
    }
    bench->judge = NULL;
}

void fa2i_bench_drop_probe(fa2i_bench *bench)
{
    if (bench->probe != 0)
        bench->device.cuda->mem_free(bench->probe);
    bench->probe = 0;
    bench->probe_bytes = 0;
}

static void drop_slot(fa2i_bench *bench, fa2i_bench_slot *slot)
{
    if (slot->graph != NULL)
        bench->device.cuda->graph_exec_destroy(slot->graph);
    if (slot->ready)
        fa2i_unload(&bench->device, &slot->loaded);
    *slot = (fa2i_bench_slot){0};
}

void fa2i_bench_done(fa2i_bench *bench)
{
    const fa2i_cuda_table *cuda = bench->device.cuda;
    if (bench->entered) {
        fa2i_bench_drop_case(bench);
        fa2i_bench_drop_probe(bench);
        for (size_t i = 0; i < bench->slot_count; i++)
            drop_slot(bench, &bench->slots[i]);
        if (bench->flush != 0)
            cuda->mem_free(bench->flush);
        if (bench->end != NULL)
            cuda->event_destroy(bench->end);
        if (bench->begin != NULL)
            cuda->event_destroy(bench->begin);
        if (bench->stream != NULL)
            cuda->stream_destroy(bench->stream);
        fa2i_device_leave(&bench->device);
    }
    fa2i_free(bench->slots);
    fa2i_device_close(&bench->device);
    *bench = (fa2i_bench){0};
}

static fa2_status reserve_slot(fa2i_bench *bench, uint32_t id)
{
    const size_t before = bench->slot_count;
    const fa2_status st = FA2I_GROW(bench->slots, (size_t)id + 1, bench->slot_count);
    if (st == FA2_OK)
        memset(bench->slots + before, 0, (bench->slot_count - before) * sizeof *bench->slots);
    return st;
}

fa2_status fa2i_bench_load(fa2i_bench *bench, uint32_t id, const fa2i_kernel *kernel)
{
    fa2_status st = FA2_OK;
    FA2_TRY(reserve_slot(bench, id));
    drop_slot(bench, &bench->slots[id]);
    FA2_TRY(fa2i_load(&bench->device, kernel, &bench->slots[id].loaded, &bench->result));
    bench->slots[id].ready = true;
done:
    return st;
}

bool fa2i_bench_broken(const fa2i_bench *bench)
{
    if (!bench->entered)
        return true;
    fa2i_watch_begin(bench->watch, bench->patience_s);
    const CUresult result = bench->device.cuda->ctx_synchronize();
    fa2i_watch_end(bench->watch);
    return result != CUDA_SUCCESS;
}
