/*
 * The operands of the present case in device memory: making, poisoning, checking and fetching them.
 *
 * - Everything that launches write has a guard before and after it; the workspace has one after it. Data that launches
 *   change is made again before each launch that is judged.
 */
#include "runtime/base/alloc.h"
#include "tuner/worker/bench_internal.h"

static bool is_output(const fa2i_bench *bench, int operand)
{
    return bench->judge->operands[operand].output;
}

/* Bytes of its memory, without guards; 0: the case does not have it. */
static size_t operand_bytes(const fa2i_bench *bench, int operand)
{
    return fa2i_case_operand_bytes(&bench->current, operand);
}

static bool is_written(const fa2i_bench *bench, int operand)
{
    return fa2i_case_is_written(&bench->current, operand);
}

static size_t guard_bytes(const fa2i_bench *bench, int operand)
{
    return is_written(bench, operand) ? FA2I_GUARD_BYTES : 0;
}

/* Bytes of its memory with guards: whole words, because that is how poison is written and compared. */
static size_t memory_bytes(const fa2i_bench *bench, int operand)
{
    const size_t bytes = operand_bytes(bench, operand) + 2 * guard_bytes(bench, operand);
    return (bytes + sizeof(uint32_t) - 1) / sizeof(uint32_t) * sizeof(uint32_t);
}

/* Address of its first element; 0: the case does not have it. */
static CUdeviceptr address_of(const fa2i_bench *bench, int operand)
{
    const CUdeviceptr memory = bench->operands[operand];
    return memory == 0 ? 0 : memory + guard_bytes(bench, operand);
}

/* Uploads one period and doubles it on the device until the operand is full. */
static fa2_status fill_input(fa2i_bench *bench, int operand)
{
    fa2_status st = FA2_OK;
    const fa2i_cuda_table *cuda = bench->device.cuda;
    const fa2i_case *c = &bench->current;
    const CUdeviceptr base = address_of(bench, operand);
    size_t have = fa2i_case_period(c, operand) * fa2i_case_extent(c, operand).elem_bytes;
    const size_t total = operand_bytes(bench, operand);
    void *block = NULL;
    FA2_TRY(fa2i_new(&block, have, 1));
    FA2_TRY(fa2i_case_fill(c, operand, block));
    FA2_TRY(fa2i_bench_check(bench, cuda->memcpy_htod(base, block, have), "cuMemcpyHtoD"));
    while (have < total) {
        const size_t bytes = have < total - have ? have : total - have;
        FA2_TRY(fa2i_bench_check(bench, cuda->memcpy_dtod(base + have, base, bytes), "cuMemcpyDtoD"));
        have += bytes;
    }
done:
    fa2i_free(block);
    return st;
}

static fa2_status too_large(const fa2i_bench *bench, size_t free_bytes)
{
    return fa2i_fail(FA2_E_CUDA, "needs %.1f MiB of device memory, %.1f MiB are free",
                     (double)fa2i_case_bytes(&bench->current) / 0x1p20, (double)free_bytes / 0x1p20);
}

/* The free memory is fragmented, or another process has taken it. */
static fa2_status refused(const fa2i_bench *bench, size_t free_bytes)
{
    return fa2i_fail(FA2_E_CUDA,
                     "needs %.1f MiB of device memory, which the driver refused, though it says that %.1f MiB are free",
                     (double)fa2i_case_bytes(&bench->current) / 0x1p20, (double)free_bytes / 0x1p20);
}

static fa2_status allocate(fa2i_bench *bench)
{
    const fa2i_cuda_table *cuda = bench->device.cuda;
    size_t free_bytes = 0, total_bytes = 0;
    CUresult result = cuda->mem_get_info(&free_bytes, &total_bytes);
    if (result != CUDA_SUCCESS)
        return fa2i_bench_check(bench, result, "cuMemGetInfo");
    if (fa2i_case_bytes(&bench->current) > free_bytes)
        return too_large(bench, free_bytes);
    for (int i = 0; i < bench->judge->operand_count; i++) {
        if (operand_bytes(bench, i) == 0)
            continue;
        result = cuda->mem_alloc(&bench->operands[i], memory_bytes(bench, i));
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            return refused(bench, free_bytes);
        if (result != CUDA_SUCCESS)
            return fa2i_bench_check(bench, result, "cuMemAlloc");
    }
    return FA2_OK;
}

fa2i_arguments fa2i_bench_arguments(const fa2i_bench *bench, size_t workspace_bytes)
{
    uint64_t addresses[FA2I_OPERANDS_MAX] = {0};
    for (int i = 0; i < bench->judge->operand_count; i++)
        addresses[i] = address_of(bench, i);
    return bench->judge->arguments(&bench->current, addresses, workspace_bytes > 0 ? bench->workspace : 0,
                                   workspace_bytes);
}

fa2_status fa2i_bench_case(fa2i_bench *bench, const fa2i_case *c)
{
    fa2_status st = FA2_OK;
    fa2i_bench_drop_case(bench);
    fa2i_bench_drop_probe(bench);
    bench->current = *c;
    bench->judge = fa2i_judge_of(c->problem.op);
    FA2_TRY(allocate(bench));
    for (int i = 0; i < bench->judge->operand_count; i++)
        if (fa2i_case_has_data(&bench->current, i) && operand_bytes(bench, i) > 0)
            FA2_TRY(fill_input(bench, i));
    const fa2i_arguments arguments = fa2i_bench_arguments(bench, 0);
    FA2_TRY(fa2i_op_of(&c->problem)->check_args(&c->problem, &arguments, NULL));
    FA2_TRY(fa2i_bench_check(bench, bench->device.cuda->ctx_synchronize(), "filling the tensors"));
done:
    if (st != FA2_OK)
        fa2i_bench_drop_case(bench);
    return st;
}

fa2_status fa2i_bench_give_workspace(fa2i_bench *bench, size_t bytes)
{
    if (bytes <= bench->workspace_bytes)
        return FA2_OK;
    fa2i_bench_drop_workspace(bench);
    CUresult result = bench->device.cuda->mem_alloc(&bench->workspace, bytes + FA2I_GUARD_BYTES);
    if (result != CUDA_SUCCESS)
        return fa2i_bench_check(bench, result, "allocating the workspace");
    bench->workspace_bytes = bytes;
    return FA2_OK;
}

/* Counts the words of a guard that are no longer poison. */
static fa2_status count_guard(fa2i_bench *bench, CUdeviceptr at, uint32_t *guard, uint32_t *count)
{
    CUresult result = bench->device.cuda->memcpy_dtoh(guard, at, FA2I_GUARD_BYTES);
    if (result != CUDA_SUCCESS)
        return fa2i_bench_check(bench, result, "reading a guard");
    for (size_t i = 0; i < FA2I_GUARD_BYTES / sizeof *guard; i++)
        *count += guard[i] != FA2I_POISON;
    return FA2_OK;
}

fa2_status fa2i_bench_count_overwritten(fa2i_bench *bench, size_t workspace_bytes, uint32_t *guard, uint32_t *count)
{
    fa2_status st = FA2_OK;
    for (int i = 0; i < bench->judge->operand_count; i++) {
        if (!is_written(bench, i) || bench->operands[i] == 0)
            continue;
        const CUdeviceptr first = address_of(bench, i);
        FA2_TRY(count_guard(bench, first - FA2I_GUARD_BYTES, guard, count));
        FA2_TRY(count_guard(bench, first + operand_bytes(bench, i), guard, count));
    }
    if (workspace_bytes > 0)
        FA2_TRY(count_guard(bench, bench->workspace + workspace_bytes, guard, count));
done:
    return st;
}

fa2_status fa2i_bench_poison(fa2i_bench *bench)
{
    const fa2i_cuda_table *cuda = bench->device.cuda;
    fa2_status st = FA2_OK;
    for (int i = 0; i < bench->judge->operand_count; i++) {
        const size_t words = memory_bytes(bench, i) / sizeof(uint32_t);
        if (is_written(bench, i) && bench->operands[i] != 0)
            FA2_TRY(fa2i_bench_check(bench,
                                     cuda->memset_d32_async(bench->operands[i], FA2I_POISON, words, bench->stream),
                                     "cuMemsetD32Async"));
    }
    if (bench->workspace != 0)
        FA2_TRY(fa2i_bench_check(bench,
                                 cuda->memset_d32_async(bench->workspace, FA2I_POISON,
                                                        (bench->workspace_bytes + FA2I_GUARD_BYTES) / sizeof(uint32_t),
                                                        bench->stream),
                                 "cuMemsetD32Async"));
    for (int i = 0; i < bench->judge->operand_count; i++) {
        if (!is_written(bench, i) || !fa2i_case_has_data(&bench->current, i) || bench->operands[i] == 0)
            continue;
        FA2_TRY(fa2i_bench_check(bench, cuda->stream_synchronize(bench->stream), "poisoning"));
        FA2_TRY(fill_input(bench, i));
    }
done:
    return st;
}

static bool is_place(const fa2i_bench *bench, const fa2i_place *place)
{
    if (place->operand < 0 || place->operand >= bench->judge->operand_count || !is_output(bench, place->operand))
        return false;
    const fa2i_extent e = fa2i_case_extent(&bench->current, place->operand);
    return place->batch >= 0 && place->batch < e.batch && place->head >= 0 && place->head < e.heads &&
           place->row >= 0 && place->row < e.seq;
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
        return fa2i_fail(FA2_E_INVALID, "the case has no output %d with batch %d head %d row %d", (int)place->operand,
                         (int)place->batch, (int)place->head, (int)place->row);
    const fa2i_extent e = fa2i_case_extent(&bench->current, place->operand);
    const int64_t index = fa2i_extent_at(&e, place->batch, place->head, place->row);
    const CUdeviceptr at = address_of(bench, place->operand) + (size_t)index * e.elem_bytes;
    const size_t bytes = row_bytes(bench, place->operand);
    void *out = *next;
    *next += bytes;
    return fa2i_bench_check(bench, bench->device.cuda->memcpy_dtoh(out, at, bytes), "reading an output");
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
            FA2_TRY(
                fa2i_bench_check(bench, cuda->memcpy_dtoh(next, address_of(bench, i), bytes), "reading the outputs"));
        next += bytes;
    }
done:
    return st;
}
