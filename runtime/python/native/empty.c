/*
 * Calls without queries, keys or sequences. They are answered without a kernel, because a kernel needs at least one of
 * each.
 *
 * - Rows that see no key are 0, and their LSE is -inf, or their head's sink. All gradients are 0.
 * - The writes are enqueued on the stream, so streams and captures keep their order.
 */
#include "native.h"
#include "runtime/base/problem.h"

static const unsigned minus_infinity = 0xff800000u; /* the bits of a float */
enum { WORD_BYTES = 4 };

static bool lacks(const fa2py_operand *operand)
{
    return operand->shape[0] == 0 || operand->shape[1] == 0 || operand->shape[2] == 0;
}

bool fa2py_is_empty(const fa2py_operand operands[3], const fa2_problem *problem)
{
    const bool has_keys = !lacks(&operands[1]) && problem->batch > 0 &&
                          problem->seq_k > 0; /* a cache without queries may still get new keys */
    const bool has_queries = !lacks(&operands[0]) && problem->batch > 0 && problem->seq_q > 0;
    return !has_keys || (!has_queries && !problem->append);
}

fa2_problem fa2py_as_if_full(const fa2_problem *problem)
{
    fa2_problem full = *problem;
    int32_t *const sizes[] = {&full.batch, &full.seq_q, &full.seq_k};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        *sizes[i] = *sizes[i] > 0 ? *sizes[i] : 1;
    if (full.heads_q == 0 && full.heads_kv == 0)
        full.heads_q = full.heads_kv = 1;
    if (full.varlen) {
        full.total_q = full.total_q > 0 ? full.total_q : 1;
        full.total_k = full.paged || full.total_k > 0 ? full.total_k : 1;
    }
    return full;
}

bool fa2py_check_problem(const fa2_problem *problem)
{
    const fa2_status st = fa2i_problem_check(problem);
    if (st != FA2_OK)
        fa2py_raise(st);
    return st == FA2_OK;
}

static bool set_words(const fa2py_operand *operand, uint64_t address, int64_t bytes, void *stream, unsigned word)
{
    const fa2py_fill fill = {.address = address, .words = (size_t)bytes / WORD_BYTES, .stream = stream, .word = word};
    if (address % WORD_BYTES == 0)
        return fa2py_set(operand->view.tensor.device.id, &fill);
    return fa2py_refuse(PyExc_ValueError, "%s has rows that do not begin at multiples of 16 bytes", operand->name);
}

/* Returns how many elements the dimensions from `first` on hold if they are contiguous, else 0. */
static int64_t dense(const dl_tensor *tensor, int first)
{
    int64_t count = 1;
    for (int i = tensor->ndim - 1; i >= first; i--) {
        if (tensor->shape[i] != 1 && tensor->strides != NULL && tensor->strides[i] != count)
            return 0;
        count *= tensor->shape[i];
    }
    return count;
}

/* Sets the elements of the dimensions from `first` on to 0, at an address. */
static bool set_zero(const fa2py_operand *operand, int first, uint64_t address, void *stream)
{
    const dl_tensor *tensor = &operand->view.tensor;
    const int bytes = tensor->dtype.bits / 8;
    const int64_t count = dense(tensor, first);
    if (count > 0 || first == tensor->ndim)
        return set_words(operand, address, count * bytes, stream, 0);
    for (int64_t i = 0; i < tensor->shape[first]; i++)
        if (!set_zero(operand, first + 1, address + (uint64_t)(i * tensor->strides[first] * bytes), stream))
            return false;
    return true;
}

static uint64_t address_of(const fa2py_operand *operand)
{
    return (uint64_t)(uintptr_t)operand->view.tensor.data + operand->view.tensor.byte_offset;
}

bool fa2py_set_zero(const fa2py_operand *operand, void *stream)
{
    for (int i = 0; operand->object != NULL && i < operand->view.tensor.ndim; i++)
        if (operand->view.tensor.shape[i] == 0)
            return true;
    return operand->object == NULL || set_zero(operand, 0, address_of(operand), stream);
}

bool fa2py_set_lse(const fa2py_operand *lse, const fa2py_operand *start, void *stream)
{
    const dl_tensor *tensor = &lse->view.tensor;
    if (lse->object == NULL)
        return true;
    const int64_t rows = tensor->shape[tensor->ndim - 1], heads = tensor->shape[tensor->ndim - 2];
    const int64_t words = dense(tensor, 0);
    const int device = tensor->device.id;
    const uint64_t at = address_of(lse);
    if (words == 0 || start->object == NULL)
        return set_words(lse, at, words * WORD_BYTES, stream, minus_infinity);
    for (int64_t head = 0; head < heads; head++) {
        const fa2py_fill row = {.address = at + (uint64_t)(head * rows * WORD_BYTES),
                                .from = address_of(start) + (uint64_t)(head * WORD_BYTES),
                                .words = 1,
                                .total = (size_t)rows,
                                .stream = stream};
        if (!fa2py_repeat(device, &row))
            return false;
    }
    const fa2py_fill every = {
        .address = at, .from = at, .words = (size_t)(heads * rows), .total = (size_t)words, .stream = stream};
    return fa2py_repeat(device, &every);
}
