/*
 * Copies are enqueued after the work that is already in the stream, and then waited for. First come all operands with
 * one number for each sequence, because they say how much of the block table is read. Then exactly that much of the
 * table is copied. An enqueued copy is waited for before its memory is freed, even if the next copy could not be
 * enqueued.
 */
#include "runtime/cuda/check_numbers.h"

#include "runtime/base/alloc.h"
#include "runtime/ops/numbers.h"

typedef struct reader {
    const fa2i_cuda_table *cuda;
    CUstream stream;
} reader;

/* Copies numbers to allocated memory. The caller frees it after waiting for the stream, on errors, too. */
static fa2_status copy(const reader *r, const char *name, const int32_t *from, size_t count, int32_t *to)
{
    const fa2_status st = fa2i_cuda_check(
        r->cuda, r->cuda->memcpy_dtoh_async(to, (CUdeviceptr)(uintptr_t)from, count * sizeof *to, r->stream),
        "cuMemcpyDtoHAsync");
    return st == FA2_OK ? st : fa2i_fail_prefix(st, "%s cannot be read (config.check_numbers)", name);
}

static fa2_status make(const char *name, size_t count, int32_t **ret_numbers)
{
    *ret_numbers = fa2i_alloc_array(count, sizeof **ret_numbers);
    return *ret_numbers != NULL ? FA2_OK : fa2i_fail(FA2_E_MEMORY, "no memory for %zu numbers of %s", count, name);
}

static fa2_status read_operand(const reader *r, const char *name, const int32_t *from, size_t count,
                               int32_t **ret_numbers)
{
    const fa2_status st = make(name, count, ret_numbers);
    return st != FA2_OK ? st : copy(r, name, from, count, *ret_numbers);
}

/* Waits for everything that was enqueued. st: the result of enqueuing. */
static fa2_status wait(const reader *r, fa2_status st)
{
    const CUresult result = r->cuda->stream_synchronize(r->stream);
    return st != FA2_OK ? st : fa2i_cuda_check(r->cuda, result, "cuStreamSynchronize (config.check_numbers)");
}

static fa2_status read_all_but_table(const reader *r, const fa2_problem *p, const void *args, fa2i_numbers *n)
{
    fa2_status st = FA2_OK;
#define READ_OPERAND(name, field, more)                                                                                \
    if (p->field)                                                                                                      \
        FA2_TRY(read_operand(r, #name, fa2i_operand_data(p->op, args, FA2I_OPERAND_##name), (size_t)p->batch + (more), \
                             &n->name));
    FA2I_NUMBERS(READ_OPERAND)
#undef READ_OPERAND
done:
    return wait(r, st);
}

static fa2_status read_table(const reader *r, const fa2_problem *p, const void *args, fa2i_numbers *n)
{
    fa2_status st = FA2_OK;
    const fa2_forward_args *a = args;
    size_t count = 0, at = 0;
    for (int32_t b = 0; b < p->batch; b++)
        count += (size_t)fa2i_numbers_pages(p, args, n, b);
    FA2_TRY(make("block_table", count, &n->block_table));
    for (int32_t b = 0; b < p->batch; b++) {
        const size_t pages = (size_t)fa2i_numbers_pages(p, args, n, b);
        if (pages > 0)
            FA2_TRY(copy(r, "block_table", a->block_table + b * a->block_table_stride, pages, n->block_table + at));
        at += pages;
    }
done:
    return wait(r, st);
}

static fa2_status check_capture(const fa2i_device *device, CUstream stream)
{
    bool capturing = false;
    const fa2_status st = fa2i_device_is_capturing(device, stream, &capturing);
    if (st != FA2_OK || !capturing)
        return st;
    return fa2i_fail(FA2_E_CAPTURE, "config.check_numbers is 1 and the stream is being captured: the numbers in device "
                                    "memory cannot be read then; capture with a context that does not check them");
}

static void free_numbers(fa2i_numbers *n)
{
#define FREE_OPERAND(name, field, more) fa2i_free(n->name);
    FA2I_NUMBERS(FREE_OPERAND)
#undef FREE_OPERAND
    fa2i_free(n->block_table);
}

fa2_status fa2i_check_numbers(const fa2i_device *device, const fa2_problem *problem, const void *args, CUstream stream)
{
    const reader r = {device->cuda, stream};
    fa2_status st = FA2_OK;
    fa2i_numbers numbers = {0};
    if (!fa2i_numbers_asked(problem))
        return FA2_OK;
    FA2_TRY(check_capture(device, stream));
    FA2_TRY(read_all_but_table(&r, problem, args, &numbers));
    FA2_TRY(fa2i_numbers_check(problem, args, &numbers));
    if (problem->paged) {
        FA2_TRY(read_table(&r, problem, args, &numbers));
        FA2_TRY(fa2i_numbers_check_table(problem, args, &numbers));
    }
done:
    free_numbers(&numbers);
    return st;
}
