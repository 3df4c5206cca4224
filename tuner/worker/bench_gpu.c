/*
 * Kernels, tensors and clocks of the worker process.
 *
 * Invariants:
 * - graphs hold device pointers of the present case and of the workspace, so they go when one of
 *   these goes;
 * - everything runs on one stream, which also waits for the copies of the NULL stream.
 */
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "tuner/worker/bench_gpu.h"

static fa2_status check(fa2i_bench *bench, CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS)
        bench->result = result;
    return fa2i_cuda_check(bench->device.cuda, result, what);
}

fa2_status fa2i_bench_open(fa2i_bench *bench, int ordinal)
{
    fa2_status st = FA2_OK;
    FA2_TRY(fa2i_device_open(ordinal + 1, &bench->device));
    FA2_TRY(fa2i_device_enter(&bench->device));
    bench->entered = true;
    const fa2i_cuda_table *cuda = bench->device.cuda;
    FA2_TRY(check(bench, cuda->stream_create(&bench->stream, CU_STREAM_DEFAULT), "cuStreamCreate"));
    FA2_TRY(check(bench, cuda->event_create(&bench->begin, CU_EVENT_DEFAULT), "cuEventCreate"));
    FA2_TRY(check(bench, cuda->event_create(&bench->end, CU_EVENT_DEFAULT), "cuEventCreate"));
    /* More than twice the L2, because its sets do not fill evenly. */
    bench->flush_bytes = (size_t)bench->device.card.l2_bytes * 9 / 4 + (1u << 20);
    bench->flush_bytes -= bench->flush_bytes % 4;
    FA2_TRY(check(bench, cuda->mem_alloc(&bench->flush, bench->flush_bytes), "cuMemAlloc"));
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

/* Graphs hold its address. */
static void drop_workspace(fa2i_bench *bench)
{
    drop_graphs(bench);
    if (bench->workspace != 0)
        bench->device.cuda->mem_free(bench->workspace);
    bench->workspace = 0;
    bench->workspace_bytes = 0;
}

static void drop_case(fa2i_bench *bench)
{
    drop_workspace(bench);
    for (size_t i = 0; i < FA2I_OPERANDS_MAX; i++) {
        if (bench->operands[i] != 0)
            bench->device.cuda->mem_free(bench->operands[i]);
        bench->operands[i] = 0;
    }
    bench->judge = NULL;
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
        drop_case(bench);
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
    if (id < bench->slot_count)
        return FA2_OK;
    size_t count = 2 * ((size_t)id + 1);
    fa2i_bench_slot *slots = fa2i_realloc(bench->slots, count * sizeof *slots);
    if (slots == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu kernels", count);
    memset(slots + bench->slot_count, 0, (count - bench->slot_count) * sizeof *slots);
    bench->slots = slots;
    bench->slot_count = count;
    return FA2_OK;
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

static bool is_output(const fa2i_bench *bench, int operand)
{
    return bench->judge->operands[operand].output;
}

/* Its memory, without guards; 0: the case does without it. */
static size_t operand_bytes(const fa2i_bench *bench, int operand)
{
    return fa2i_case_operand_bytes(&bench->current, operand);
}

static size_t guard_bytes(const fa2i_bench *bench, int operand)
{
    return is_output(bench, operand) ? FA2I_GUARD_BYTES : 0;
}

/* Its first element; 0: the case does without it. */
static CUdeviceptr address_of(const fa2i_bench *bench, int operand)
{
    const CUdeviceptr memory = bench->operands[operand];
    return memory == 0 ? 0 : memory + guard_bytes(bench, operand);
}

/* Upload one period and double it on the device until the operand is full. */
static fa2_status fill_input(fa2i_bench *bench, int operand)
{
    fa2_status st = FA2_OK;
    const fa2i_cuda_table *cuda = bench->device.cuda;
    const fa2i_case *c = &bench->current;
    const CUdeviceptr base = bench->operands[operand];
    size_t have = fa2i_case_period(c, operand) * fa2i_case_extent(c, operand).elem_bytes;
    const size_t total = operand_bytes(bench, operand);
    void *block = fa2i_alloc(have);

    if (block == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for test data"));
    fa2i_case_fill(c, operand, block);
    FA2_TRY(check(bench, cuda->memcpy_htod(base, block, have), "cuMemcpyHtoD"));
    while (have < total) {
        const size_t bytes = have < total - have ? have : total - have;
        FA2_TRY(check(bench, cuda->memcpy_dtod(base + have, base, bytes), "cuMemcpyDtoD"));
        have += bytes;
    }
done:
    fa2i_free(block);
    return st;
}

static fa2_status too_large(const fa2i_bench *bench, size_t free_bytes)
{
    return fa2i_fail(FA2_E_CUDA, "needs %.1f MiB of device memory, %.1f MiB are free",
                     (double)fa2i_case_bytes(&bench->current) / 0x1p20,
                     (double)free_bytes / 0x1p20);
}

static fa2_status allocate(fa2i_bench *bench)
{
    const fa2i_cuda_table *cuda = bench->device.cuda;
    size_t free_bytes = 0, total_bytes = 0;
    CUresult result = cuda->mem_get_info(&free_bytes, &total_bytes);
    if (result != CUDA_SUCCESS)
        return check(bench, result, "cuMemGetInfo");
    if (fa2i_case_bytes(&bench->current) > free_bytes)
        return too_large(bench, free_bytes);
    for (int i = 0; i < bench->judge->operand_count; i++) {
        const size_t bytes = operand_bytes(bench, i);
        if (bytes == 0)
            continue;
        result = cuda->mem_alloc(&bench->operands[i], bytes + 2 * guard_bytes(bench, i));
        if (result == CUDA_ERROR_OUT_OF_MEMORY) /* free, but in pieces */
            return too_large(bench, free_bytes);
        if (result != CUDA_SUCCESS)
            return check(bench, result, "cuMemAlloc");
    }
    return FA2_OK;
}

/* The call that a launch is. */
static fa2i_arguments arguments_of(const fa2i_bench *bench, size_t workspace_bytes)
{
    uint64_t addresses[FA2I_OPERANDS_MAX] = {0};
    for (int i = 0; i < bench->judge->operand_count; i++)
        addresses[i] = address_of(bench, i);
    return bench->judge->arguments(&bench->current, addresses,
                                   workspace_bytes > 0 ? bench->workspace : 0, workspace_bytes);
}

fa2_status fa2i_bench_case(fa2i_bench *bench, const fa2i_case *c)
{
    fa2_status st = FA2_OK;
    drop_case(bench);
    bench->current = *c;
    bench->judge = fa2i_judge_of(c->problem.op);
    FA2_TRY(allocate(bench));
    for (int i = 0; i < bench->judge->operand_count; i++)
        if (!is_output(bench, i))
            FA2_TRY(fill_input(bench, i));
    const fa2i_arguments arguments = arguments_of(bench, 0);
    FA2_TRY(fa2i_op_of(&c->problem)->check_args(&c->problem, &arguments, NULL));
    FA2_TRY(check(bench, bench->device.cuda->ctx_synchronize(), "filling the tensors"));
done:
    if (st != FA2_OK)
        drop_case(bench);
    return st;
}

/* The workspace only grows, so that the kernels of one case share it. */
static fa2_status give_workspace(fa2i_bench *bench, size_t bytes)
{
    if (bytes <= bench->workspace_bytes)
        return FA2_OK;
    drop_workspace(bench);
    CUresult result = bench->device.cuda->mem_alloc(&bench->workspace, bytes + FA2I_GUARD_BYTES);
    if (result != CUDA_SUCCESS)
        return check(bench, result, "allocating the workspace");
    bench->workspace_bytes = bytes;
    return FA2_OK;
}

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
    FA2_TRY(fa2i_op_of(problem)->grid(&bench->device.card, &slot->loaded.variant.recipe, problem,
                                      &slot->grid));
    FA2_TRY(give_workspace(bench, slot->grid.workspace_bytes));
    *ret_slot = slot;
done:
    return st;
}

static fa2_status launch(const fa2i_bench *bench, const fa2i_bench_slot *slot)
{
    const fa2i_arguments arguments =
        arguments_of(bench, slot->grid.workspace_bytes > 0 ? bench->workspace_bytes : 0);
    return fa2i_launch(&bench->device, &slot->loaded, &slot->grid, &bench->current.problem,
                       &arguments, bench->stream);
}

/* Count the words of a guard that are no longer poison. */
static fa2_status count_guard(fa2i_bench *bench, CUdeviceptr at, uint32_t *guard, uint32_t *count)
{
    CUresult result = bench->device.cuda->memcpy_dtoh(guard, at, FA2I_GUARD_BYTES);
    if (result != CUDA_SUCCESS)
        return check(bench, result, "reading a guard");
    for (size_t i = 0; i < FA2I_GUARD_BYTES / sizeof *guard; i++)
        *count += guard[i] != FA2I_POISON;
    return FA2_OK;
}

/* All guards: around the outputs, behind what this kernel may use of the workspace. */
static fa2_status count_overwritten(fa2i_bench *bench, const fa2i_bench_slot *slot, uint32_t *guard,
                                    uint32_t *count)
{
    fa2_status st = FA2_OK;
    for (int i = 0; i < bench->judge->operand_count; i++) {
        if (!is_output(bench, i) || bench->operands[i] == 0)
            continue;
        const CUdeviceptr first = address_of(bench, i);
        FA2_TRY(count_guard(bench, first - FA2I_GUARD_BYTES, guard, count));
        FA2_TRY(count_guard(bench, first + operand_bytes(bench, i), guard, count));
    }
    if (slot->grid.workspace_bytes > 0)
        FA2_TRY(count_guard(bench, bench->workspace + slot->grid.workspace_bytes, guard, count));
done:
    return st;
}

/* Everything that a launch may write, and the guards. */
static fa2_status poison_outputs(fa2i_bench *bench)
{
    const fa2i_cuda_table *cuda = bench->device.cuda;
    fa2_status st = FA2_OK;
    for (int i = 0; i < bench->judge->operand_count; i++) {
        const size_t bytes = operand_bytes(bench, i) + 2 * guard_bytes(bench, i);
        if (is_output(bench, i) && bench->operands[i] != 0)
            FA2_TRY(check(bench,
                          cuda->memset_d32_async(bench->operands[i], FA2I_POISON,
                                                 bytes / sizeof(uint32_t), bench->stream),
                          "cuMemsetD32Async"));
    }
    if (bench->workspace != 0)
        FA2_TRY(check(
            bench,
            cuda->memset_d32_async(bench->workspace, FA2I_POISON,
                                   (bench->workspace_bytes + FA2I_GUARD_BYTES) / sizeof(uint32_t),
                                   bench->stream),
            "cuMemsetD32Async"));
done:
    return st;
}

fa2_status fa2i_bench_launch(fa2i_bench *bench, uint32_t id, uint32_t *ret_overwritten)
{
    fa2_status st = FA2_OK;
    const fa2i_cuda_table *cuda = bench->device.cuda;
    fa2i_bench_slot *slot = NULL;
    uint32_t overwritten = 0;
    uint32_t *guard = fa2i_alloc(FA2I_GUARD_BYTES);

    if (guard == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for a guard"));
    FA2_TRY(ready_slot(bench, id, &slot));
    FA2_TRY(poison_outputs(bench));
    FA2_TRY(launch(bench, slot));
    FA2_TRY(check(bench, cuda->stream_synchronize(bench->stream), "the kernel"));
    FA2_TRY(count_overwritten(bench, slot, guard, &overwritten));
    *ret_overwritten = overwritten;
done:
    fa2i_free(guard);
    return st;
}

static bool is_place(const fa2i_bench *bench, const fa2i_place *place)
{
    if (place->operand < 0 || place->operand >= bench->judge->operand_count ||
        !is_output(bench, place->operand))
        return false;
    const fa2i_extent e = fa2i_case_extent(&bench->current, place->operand);
    return place->batch >= 0 && place->batch < e.batch && place->head >= 0 &&
           place->head < e.heads && place->row >= 0 && place->row < e.seq;
}

static size_t row_bytes(const fa2i_bench *bench, int operand)
{
    const fa2i_extent e = fa2i_case_extent(&bench->current, operand);
    return (size_t)e.width * e.elem_bytes;
}

size_t fa2i_bench_output_bytes(const fa2i_bench *bench, const fa2i_place *places, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += is_place(bench, &places[i]) ? row_bytes(bench, places[i].operand) : 0;
    for (int i = 0; count == 0 && i < bench->judge->operand_count; i++)
        bytes += is_output(bench, i) ? operand_bytes(bench, i) : 0;
    return bytes;
}

static fa2_status read_place(fa2i_bench *bench, const fa2i_place *place, unsigned char **next)
{
    if (!is_place(bench, place))
        return fa2i_fail(FA2_E_INVALID, "the case has no output %d with batch %d head %d row %d",
                         (int)place->operand, (int)place->batch, (int)place->head,
                         (int)place->row);
    const fa2i_extent e = fa2i_case_extent(&bench->current, place->operand);
    const int64_t index = fa2i_extent_at(&e, place->batch, place->head, place->row);
    const CUdeviceptr at = address_of(bench, place->operand) + (size_t)index * e.elem_bytes;
    const size_t bytes = row_bytes(bench, place->operand);
    void *out = *next;
    *next += bytes;
    return check(bench, bench->device.cuda->memcpy_dtoh(out, at, bytes), "reading an output");
}

fa2_status fa2i_bench_output(fa2i_bench *bench, const fa2i_place *places, size_t count, void *out)
{
    fa2_status st = FA2_OK;
    const fa2i_cuda_table *cuda = bench->device.cuda;
    unsigned char *next = out;
    for (size_t i = 0; i < count; i++)
        FA2_TRY(read_place(bench, &places[i], &next));
    for (int i = 0; count == 0 && i < bench->judge->operand_count; i++) {
        const size_t bytes = is_output(bench, i) ? operand_bytes(bench, i) : 0;
        if (bytes > 0)
            FA2_TRY(check(bench, cuda->memcpy_dtoh(next, address_of(bench, i), bytes),
                          "reading the outputs"));
        next += bytes;
    }
done:
    return st;
}

/* Record the launches into the slot's graph, and run it once: the first run of a graph is slow. */
static fa2_status make_graph(fa2i_bench *bench, fa2i_bench_slot *slot, int launches)
{
    fa2_status st = FA2_OK;
    const fa2i_cuda_table *cuda = bench->device.cuda;
    CUgraph graph = NULL;

    FA2_TRY(check(bench,
                  cuda->stream_begin_capture(bench->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                  "cuStreamBeginCapture"));
    fa2_status launched = FA2_OK;
    for (int i = 0; i < launches && launched == FA2_OK; i++)
        launched = launch(bench, slot);
    CUresult ended =
        cuda->stream_end_capture(bench->stream, &graph); /* whatever the launches did */
    FA2_TRY(launched);
    FA2_TRY(check(bench, ended, "cuStreamEndCapture"));
    FA2_TRY(check(bench, cuda->graph_instantiate(&slot->graph, graph, 0), "cuGraphInstantiate"));
    slot->graph_launches = launches;
    FA2_TRY(check(bench, cuda->graph_launch(slot->graph, bench->stream), "cuGraphLaunch"));
    FA2_TRY(check(bench, cuda->stream_synchronize(bench->stream), "the kernel"));
done:
    if (graph != NULL)
        cuda->graph_destroy(graph);
    return st;
}

fa2_status fa2i_bench_sample(fa2i_bench *bench, uint32_t id, int launches, double *ret_us)
{
    fa2_status st = FA2_OK;
    const fa2i_cuda_table *cuda = bench->device.cuda;
    fa2i_bench_slot *slot = NULL;
    float elapsed_ms = 0;

    FA2_TRY(ready_slot(bench, id, &slot));
    if (launches > 1 && (slot->graph == NULL || slot->graph_launches != launches))
        FA2_TRY(make_graph(bench, slot, launches));
    if (launches == 1)
        FA2_TRY(check(bench,
                      cuda->memset_d32_async(bench->flush, 0, bench->flush_bytes / sizeof(uint32_t),
                                             bench->stream),
                      "cuMemsetD32Async"));
    FA2_TRY(check(bench, cuda->event_record(bench->begin, bench->stream), "cuEventRecord"));
    if (launches == 1)
        FA2_TRY(launch(bench, slot));
    else
        FA2_TRY(check(bench, cuda->graph_launch(slot->graph, bench->stream), "cuGraphLaunch"));
    FA2_TRY(check(bench, cuda->event_record(bench->end, bench->stream), "cuEventRecord"));
    FA2_TRY(check(bench, cuda->event_synchronize(bench->end), "the kernel"));
    FA2_TRY(check(bench, cuda->event_elapsed_time(&elapsed_ms, bench->begin, bench->end),
                  "cuEventElapsedTime"));
    *ret_us = (double)elapsed_ms * 1e3 / launches;
done:
    return st;
}

bool fa2i_bench_broken(const fa2i_bench *bench)
{
    return !bench->entered || bench->device.cuda->ctx_synchronize() != CUDA_SUCCESS;
}
