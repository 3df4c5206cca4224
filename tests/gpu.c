/*
 * How the guards work: a tensor's memory is GUARD_ELEMS of poison, the tensor with its gaps, and GUARD_ELEMS of poison.
 * gpu_tensor_put writes all of it. gpu_tensor_get reads all of it, takes the tensor out (leaving poison), then counts
 * elements that are no poison any more. The LSE has the same with a poison of 32 bits.
 */
#include <math.h>
#include <stdlib.h>
#include "runtime/base/alloc.h"
#include "tests/check.h"
#include "tests/gpu.h"

/* A tile of the widest rows, so that a tile read past the end meets poison. */
enum { GUARD_ELEMS = 128 * 256, LSE_GUARD_ELEMS = 1024, PADDING_ELEMS = 24 };
static const uint32_t lse_poison = 0x7fa5a5a5u;

int gpu_open(fa2i_device *ret_device)
{
    fa2_status st = fa2i_device_open(1, ret_device);
    if (st == FA2_OK)
        st = fa2i_device_enter(ret_device);
    if (st == FA2_OK)
        return 0;
    bool missing = st == FA2_E_NO_DRIVER || st == FA2_E_NO_DEVICE || st == FA2_E_UNSUPPORTED;
    fprintf(stderr, "%s: %s\n", missing ? "skipped" : "failed", fa2_last_message());
    return missing ? CHECK_SKIP : 1;
}

void gpu_must(const fa2i_device *device, CUresult result, const char *what)
{
    gpu_must_fa2(fa2i_cuda_check(device->cuda, result, what), what);
}

void gpu_must_fa2(fa2_status status, const char *what)
{
    if (status == FA2_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, fa2_last_message());
    exit(1);
}

void *gpu_host(size_t count, size_t size)
{
    void *memory = fa2i_alloc_array(count, size);
    if (memory == NULL) {
        fprintf(stderr, "no memory for %zu x %zu bytes\n", count, size);
        exit(1);
    }
    return memory;
}

uint64_t gpu_random(uint64_t *state)
{
    /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The sum of four 16-bit uniform numbers is near enough to a normal one. */
uint16_t *gpu_random_bits(size_t count, fa2_dtype dtype, float magnitude, uint64_t *state)
{
    uint16_t *bits = gpu_host(count, sizeof *bits);
    const float variance_of_sum = 4.0f / 12.0f;
    const float factor = magnitude / sqrtf(variance_of_sum) / 65536.0f;
    for (size_t i = 0; i < count; i++) {
        uint64_t r = gpu_random(state);
        int sum = (int)(r & 0xffff) + (int)(r >> 16 & 0xffff) + (int)(r >> 32 & 0xffff) + (int)(r >> 48);
        bits[i] = fa2i_to_bits(dtype, (float)(sum - 2 * 65536) * factor);
    }
    return bits;
}

size_t gpu_o_elems(const fa2_problem *problem)
{
    return gpu_lse_elems(problem) * (size_t)problem->head_dim;
}

size_t gpu_lse_elems(const fa2_problem *problem)
{
    return (size_t)problem->batch * (size_t)problem->heads_q * (size_t)problem->seq_q;
}

static size_t kv_elems(const fa2_problem *problem)
{
    return (size_t)problem->batch * (size_t)problem->heads_kv * (size_t)problem->seq_k * (size_t)problem->head_dim;
}

void gpu_inputs_init(const fa2_problem *problem, float magnitude, uint64_t seed, gpu_inputs *ret_inputs)
{
    ret_inputs->q = gpu_random_bits(gpu_o_elems(problem), problem->dtype, magnitude, &seed);
    ret_inputs->k = gpu_random_bits(kv_elems(problem), problem->dtype, magnitude, &seed);
    ret_inputs->v = gpu_random_bits(kv_elems(problem), problem->dtype, 1, &seed);
}

void gpu_inputs_done(gpu_inputs *inputs)
{
    fa2i_free(inputs->q);
    fa2i_free(inputs->k);
    fa2i_free(inputs->v);
    *inputs = (gpu_inputs){0};
}

static fa2i_host_tensor dense_tensor(const uint16_t *data, int32_t seq, int32_t heads, int32_t head_dim)
{
    return (fa2i_host_tensor){.data = data,
                              .stride_batch = (int64_t)seq * heads * head_dim,
                              .stride_seq = (int64_t)heads * head_dim,
                              .stride_head = head_dim};
}

void gpu_reference(const fa2_problem *problem, const gpu_inputs *inputs, float softmax_scale, float softcap,
                   const fa2i_row *rows, size_t row_count, fa2i_reference *ret_reference)
{
    const fa2i_reference_request request = {
        .problem = *problem,
        .factors = {.softmax_scale = softmax_scale, .softcap = softcap},
        .q = dense_tensor(inputs->q, problem->seq_q, problem->heads_q, problem->head_dim),
        .k = dense_tensor(inputs->k, problem->seq_k, problem->heads_kv, problem->head_dim),
        .v = dense_tensor(inputs->v, problem->seq_k, problem->heads_kv, problem->head_dim),
        .rows = rows,
        .row_count = row_count,
        .threads = 1};
    gpu_must_fa2(fa2i_reference_compute(&request, ret_reference), "reference");
}

static void set_strides(gpu_layout layout, gpu_tensor *tensor)
{
    int64_t row = tensor->head_dim;
    fa2_tensor *view = &tensor->view;
    if (layout == GPU_BHSD) {
        view->stride_seq = row;
        view->stride_head = row * tensor->seq;
        view->stride_batch = view->stride_head * tensor->heads;
        return;
    }
    view->stride_head = row;
    view->stride_seq = row * tensor->heads + (layout == GPU_PADDED ? PADDING_ELEMS : 0);
    view->stride_batch = view->stride_seq * tensor->seq;
}

void gpu_tensor_init(const fa2i_device *device, gpu_layout layout, int32_t seq, int32_t heads,
                     const fa2_problem *problem, gpu_tensor *ret_tensor)
{
    gpu_tensor tensor = {.batch = problem->batch, .seq = seq, .heads = heads, .head_dim = problem->head_dim};
    set_strides(layout, &tensor);
    tensor.first_elem = GUARD_ELEMS;
    tensor.image_elems = 2 * (size_t)GUARD_ELEMS + (size_t)tensor.batch * (size_t)tensor.view.stride_batch;
    tensor.image = gpu_host(tensor.image_elems, sizeof *tensor.image);
    gpu_must(device, device->cuda->mem_alloc(&tensor.memory, 2 * tensor.image_elems), "cuMemAlloc");
    tensor.view.data = (uint16_t *)(uintptr_t)tensor.memory + tensor.first_elem;
    *ret_tensor = tensor;
}

void gpu_tensor_done(const fa2i_device *device, gpu_tensor *tensor)
{
    if (tensor->memory != 0)
        gpu_must(device, device->cuda->mem_free(tensor->memory), "cuMemFree");
    fa2i_free(tensor->image);
    *tensor = (gpu_tensor){0};
}

/* Returns the beginning of row (b, s, h) in the image. Rows of the dense array have the order b, s, h. */
static uint16_t *image_row(const gpu_tensor *tensor, size_t dense_row)
{
    size_t heads = (size_t)tensor->heads, seq = (size_t)tensor->seq;
    return tensor->image + tensor->first_elem + dense_row / (heads * seq) * (size_t)tensor->view.stride_batch +
           dense_row / heads % seq * (size_t)tensor->view.stride_seq +
           dense_row % heads * (size_t)tensor->view.stride_head;
}

static size_t tensor_rows(const gpu_tensor *tensor)
{
    return (size_t)tensor->batch * (size_t)tensor->seq * (size_t)tensor->heads;
}

static void fill_poison(uint16_t *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        data[i] = GPU_POISON;
}

void gpu_tensor_put(const fa2i_device *device, gpu_tensor *tensor, const uint16_t *dense)
{
    size_t row_elems = (size_t)tensor->head_dim;
    fill_poison(tensor->image, tensor->image_elems);
    for (size_t row = 0; dense != NULL && row < tensor_rows(tensor); row++)
        memcpy(image_row(tensor, row), dense + row * row_elems, row_elems * sizeof *dense);
    gpu_must(device, device->cuda->memcpy_htod(tensor->memory, tensor->image, 2 * tensor->image_elems), "cuMemcpyHtoD");
}

void gpu_tensor_poison(const fa2i_device *device, gpu_tensor *tensor, CUstream stream)
{
    /* strides are multiples of 8, so the number of elements is even */
    gpu_must(device, device->cuda->memset_d32_async(tensor->memory, GPU_POISON_WORD, tensor->image_elems / 2, stream),
             "cuMemsetD32Async");
}

size_t gpu_tensor_get(const fa2i_device *device, gpu_tensor *tensor, uint16_t *dense)
{
    size_t row_elems = (size_t)tensor->head_dim, strays = 0;
    gpu_must(device, device->cuda->memcpy_dtoh(tensor->image, tensor->memory, 2 * tensor->image_elems), "cuMemcpyDtoH");
    for (size_t row = 0; row < tensor_rows(tensor); row++) {
        memcpy(dense + row * row_elems, image_row(tensor, row), row_elems * sizeof *dense);
        fill_poison(image_row(tensor, row), row_elems);
    }
    for (size_t i = 0; i < tensor->image_elems; i++)
        strays += tensor->image[i] != GPU_POISON;
    return strays;
}

fa2_status gpu_call_init(const fa2i_device *device, fa2_context *context, const fa2_problem *problem, gpu_layout layout,
                         bool with_lse, gpu_call *ret_call)
{
    gpu_call call = {.device = device, .problem = *problem, .args.struct_bytes = sizeof call.args};
    fa2_status st = fa2_workspace_size(context, problem, &call.args.workspace_bytes);
    if (st != FA2_OK)
        return st;
    if (call.args.workspace_bytes > 0)
        gpu_must(device, device->cuda->mem_alloc(&call.workspace, call.args.workspace_bytes), "cuMemAlloc");
    call.args.workspace = (void *)(uintptr_t)call.workspace;
    gpu_tensor_init(device, layout, problem->seq_q, problem->heads_q, problem, &call.q);
    gpu_tensor_init(device, layout, problem->seq_k, problem->heads_kv, problem, &call.k);
    gpu_tensor_init(device, layout, problem->seq_k, problem->heads_kv, problem, &call.v);
    gpu_tensor_init(device, layout, problem->seq_q, problem->heads_q, problem, &call.o);
    call.args.q = call.q.view;
    call.args.k = call.k.view;
    call.args.v = call.v.view;
    call.args.o = call.o.view;
    if (with_lse) {
        size_t elems = gpu_lse_elems(problem) + 2 * LSE_GUARD_ELEMS;
        gpu_must(device, device->cuda->mem_alloc(&call.lse_memory, 4 * elems), "cuMemAlloc");
        call.args.lse = (float *)(uintptr_t)call.lse_memory + LSE_GUARD_ELEMS;
    }
    *ret_call = call;
    return FA2_OK;
}

void gpu_call_done(gpu_call *call)
{
    if (call->device == NULL)
        return;
    gpu_tensor_done(call->device, &call->q);
    gpu_tensor_done(call->device, &call->k);
    gpu_tensor_done(call->device, &call->v);
    gpu_tensor_done(call->device, &call->o);
    if (call->lse_memory != 0)
        gpu_must(call->device, call->device->cuda->mem_free(call->lse_memory), "cuMemFree");
    if (call->workspace != 0)
        gpu_must(call->device, call->device->cuda->mem_free(call->workspace), "cuMemFree");
    *call = (gpu_call){0};
}

void gpu_call_put(gpu_call *call, const gpu_inputs *inputs)
{
    const fa2i_cuda_table *cuda = call->device->cuda;
    gpu_tensor_put(call->device, &call->q, inputs->q);
    gpu_tensor_put(call->device, &call->k, inputs->k);
    gpu_tensor_put(call->device, &call->v, inputs->v);
    gpu_tensor_put(call->device, &call->o, NULL);
    if (call->lse_memory != 0)
        gpu_must(call->device,
                 cuda->memset_d32_async(call->lse_memory, lse_poison,
                                        gpu_lse_elems(&call->problem) + 2 * LSE_GUARD_ELEMS, NULL),
                 "cuMemsetD32Async");
    gpu_must(call->device, cuda->ctx_synchronize(), "cuCtxSynchronize");
}

static size_t get_lse(gpu_call *call, float *lse)
{
    size_t elems = gpu_lse_elems(&call->problem), strays = 0;
    size_t all_elems = elems + 2 * LSE_GUARD_ELEMS;
    uint32_t *image = gpu_host(all_elems, sizeof *image);
    gpu_must(call->device, call->device->cuda->memcpy_dtoh(image, call->lse_memory, all_elems * sizeof *image),
             "cuMemcpyDtoH");
    memcpy(lse, image + LSE_GUARD_ELEMS, elems * sizeof *lse);
    for (size_t i = 0; i < LSE_GUARD_ELEMS; i++) {
        strays += image[i] != lse_poison;
        strays += image[LSE_GUARD_ELEMS + elems + i] != lse_poison;
    }
    fa2i_free(image);
    return strays;
}

size_t gpu_call_get(gpu_call *call, uint16_t *o, float *lse)
{
    size_t strays = gpu_tensor_get(call->device, &call->o, o);
    return call->lse_memory != 0 ? strays + get_lse(call, lse) : strays;
}

/* ---- gradients ---- */

static void *ones(const fa2i_device *device, size_t bytes)
{
    CUdeviceptr memory = 0;
    const unsigned word = 0x3c003c00u; /* in fp16 */
    gpu_must(device, device->cuda->mem_alloc(&memory, bytes), "cuMemAlloc");
    gpu_must(device, device->cuda->memset_d32_async(memory, word, bytes / 4, NULL), "cuMemsetD32Async");
    return (void *)(uintptr_t)memory;
}

static fa2_tensor tensor_of_ones(const fa2i_device *device, const fa2_problem *p, int32_t seq, int32_t heads)
{
    const int64_t row = (int64_t)heads * p->head_dim, elems = (int64_t)p->batch * seq * row;
    return (fa2_tensor){.data = ones(device, sizeof(uint16_t) * (size_t)elems),
                        .stride_batch = seq * row,
                        .stride_seq = row,
                        .stride_head = p->head_dim};
}

fa2_status gpu_gradients_init(const fa2i_device *device, fa2_context *context, const fa2_problem *problem,
                              gpu_gradients *ret_gradients)
{
    gpu_gradients g = {.device = device, .args.struct_bytes = sizeof g.args};
    fa2_tensor *const of_queries[] = {&g.args.q, &g.args.o, &g.args.d_o, &g.args.dq};
    fa2_tensor *const of_keys[] = {&g.args.k, &g.args.v, &g.args.dk, &g.args.dv};
    const fa2_status st = fa2_workspace_size(context, problem, &g.args.workspace_bytes);
    if (st != FA2_OK)
        return st;
    for (size_t i = 0; i < sizeof of_keys / sizeof *of_keys; i++) {
        *of_queries[i] = tensor_of_ones(device, problem, problem->seq_q, problem->heads_q);
        *of_keys[i] = tensor_of_ones(device, problem, problem->seq_k, problem->heads_kv);
    }
    g.args.lse = ones(device, sizeof(float) * gpu_lse_elems(problem));
    if (g.args.workspace_bytes > 0)
        g.args.workspace = ones(device, g.args.workspace_bytes);
    gpu_must(device, device->cuda->ctx_synchronize(), "cuCtxSynchronize");
    *ret_gradients = g;
    return FA2_OK;
}

void gpu_gradients_done(gpu_gradients *gradients)
{
    const fa2_backward_args *a = &gradients->args;
    const void *const memory[] = {a->q.data,  a->k.data,  a->v.data,  a->o.data, a->d_o.data,
                                  a->dq.data, a->dk.data, a->dv.data, a->lse,    a->workspace};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i] != NULL)
            gpu_must(gradients->device, gradients->device->cuda->mem_free((CUdeviceptr)(uintptr_t)memory[i]),
                     "cuMemFree");
    *gradients = (gpu_gradients){0};
}
