/*
 * Offsets beyond 32 bits: for each of batch, sequence and head, a problem whose stride in that dimension puts the ends
 * of the tensors more than 2^31 elements after their beginnings. All four tensors are interleaved in one allocation of
 * a bit more than 4 GiB. Without that much memory the test is skipped.
 */
#include <stdlib.h>
#include "runtime/base/alloc.h"
#include "tests/check.h"
#include "tests/gpu.h"
#include "tests/reference_compare.h"

enum { SEED = 3, TENSORS = 4, MARGIN_ELEMS = 1 << 20 };
enum { Q, K, V, O };
static const int64_t far_elems = INT64_C(1) << 31;

static const fa2_problem problem = {.struct_bytes = sizeof(fa2_problem),
                                    .dtype = FA2_FP16,
                                    .batch = 2,
                                    .heads_q = 2,
                                    .heads_kv = 2,
                                    .seq_q = 130,
                                    .seq_k = 130,
                                    .head_dim = 64,
                                    .causal = 1};

typedef enum far_dimension { FAR_BATCH, FAR_SEQ, FAR_HEAD, FAR_DIMENSIONS } far_dimension;

/* Places the four tensors in the arena. Apart from the far dimension, a tensor is contiguous and begins where the one
 * before ends. */
static void place(far_dimension which, CUdeviceptr arena, fa2_tensor views[TENSORS])
{
    const int64_t extents[FAR_DIMENSIONS] = {problem.batch, problem.seq_q, problem.heads_q};
    int64_t strides[FAR_DIMENSIONS];
    int64_t near_elems = problem.head_dim;
    for (int d = 0; d < FAR_DIMENSIONS; d++) {
        if (d == (int)which)
            continue;
        strides[d] = near_elems;
        near_elems *= extents[d];
    }
    strides[which] = (far_elems / (extents[which] - 1) / 8 + 1) * 8;
    for (int t = 0; t < TENSORS; t++)
        views[t] = (fa2_tensor){.data = (uint16_t *)(uintptr_t)arena + t * near_elems,
                                .stride_batch = strides[FAR_BATCH],
                                .stride_seq = strides[FAR_SEQ],
                                .stride_head = strides[FAR_HEAD]};
}

/* The problem's row (batch, seq, head) as an index into a dense array. */
static CUdeviceptr row_address(const fa2_tensor *view, size_t dense_row)
{
    int64_t heads = problem.heads_q, seq = problem.seq_q, row = (int64_t)dense_row;
    int64_t offset = row / (heads * seq) * view->stride_batch + row / heads % seq * view->stride_seq +
                     row % heads * view->stride_head;
    return (CUdeviceptr)(uintptr_t)((uint16_t *)view->data + offset);
}

static void put(const fa2i_device *device, const fa2_tensor *view, const uint16_t *dense)
{
    size_t dim = (size_t)problem.head_dim;
    for (size_t row = 0; row < gpu_lse_elems(&problem); row++)
        gpu_must(device, device->cuda->memcpy_htod(row_address(view, row), dense + row * dim, 2 * dim), "cuMemcpyHtoD");
}

static void get(const fa2i_device *device, const fa2_tensor *view, uint16_t *dense)
{
    size_t dim = (size_t)problem.head_dim;
    for (size_t row = 0; row < gpu_lse_elems(&problem); row++)
        gpu_must(device, device->cuda->memcpy_dtoh(dense + row * dim, row_address(view, row), 2 * dim), "cuMemcpyDtoH");
}

/* Compares O (dense) by the reference's rule. The reference's rows are in dense order. */
static void check(const gpu_inputs *inputs, const uint16_t *o)
{
    size_t count = gpu_lse_elems(&problem);
    fa2i_row *rows = gpu_host(count, sizeof *rows);
    fa2i_reference reference;
    reference_comparison comparison;
    for (size_t i = 0; i < count; i++)
        rows[i] = (fa2i_row){.batch = (int32_t)i / (problem.heads_q * problem.seq_q),
                             .row = (int32_t)i / problem.heads_q % problem.seq_q,
                             .head = (int32_t)i % problem.heads_q};
    gpu_reference(&problem, inputs, 0, 0, rows, count, &reference);
    reference_compare(&reference, problem.dtype, o, NULL, &comparison);
    printf("error/bound %.3f\n", comparison.error);
    CHECK(comparison.error <= 1);
    fa2i_reference_done(&reference);
    fa2i_free(rows);
}

static void run(const fa2i_device *device, fa2_context *context, far_dimension which, CUdeviceptr arena)
{
    static const char *const names[] = {"batch", "sequence", "head"};
    fa2_tensor views[TENSORS];
    gpu_inputs inputs;
    uint16_t *o = gpu_host(gpu_o_elems(&problem), sizeof *o);
    place(which, arena, views);
    gpu_inputs_init(&problem, 1, SEED, &inputs);
    for (size_t i = 0; i < gpu_o_elems(&problem); i++)
        o[i] = GPU_POISON;
    put(device, &views[Q], inputs.q);
    put(device, &views[K], inputs.k);
    put(device, &views[V], inputs.v);
    put(device, &views[O], o);
    fa2_forward_args args = {
        .struct_bytes = sizeof(fa2_forward_args), .q = views[Q], .k = views[K], .v = views[V], .o = views[O]};
    CUdeviceptr workspace = 0;
    gpu_must_fa2(fa2_workspace_size(context, &problem, &args.workspace_bytes), "fa2_workspace_size");
    if (args.workspace_bytes > 0)
        gpu_must(device, device->cuda->mem_alloc(&workspace, args.workspace_bytes), "cuMemAlloc");
    args.workspace = (void *)(uintptr_t)workspace;
    printf("far %s stride: ", names[which]);
    gpu_must_fa2(fa2_forward(context, &problem, &args, NULL), "fa2_forward");
    gpu_must(device, device->cuda->ctx_synchronize(), "cuCtxSynchronize");
    get(device, &views[O], o);
    check(&inputs, o);
    if (workspace != 0)
        gpu_must(device, device->cuda->mem_free(workspace), "cuMemFree");
    gpu_inputs_done(&inputs);
    fa2i_free(o);
}

int main(void)
{
    fa2i_device device = {0};
    fa2_context *context = NULL;
    CUdeviceptr arena;
    size_t free_bytes, total_bytes, bytes = 2 * ((size_t)far_elems + MARGIN_ELEMS);
    int opened = gpu_open(&device);
    if (opened != 0)
        return opened;
    gpu_must(&device, device.cuda->mem_get_info(&free_bytes, &total_bytes), "cuMemGetInfo");
    if (free_bytes < bytes + (size_t)(256 << 20)) {
        fprintf(stderr, "skipped: needs %zu MiB of device memory, %zu are free\n", bytes >> 20, free_bytes >> 20);
        return CHECK_SKIP;
    }
    gpu_must(&device, device.cuda->mem_alloc(&arena, bytes), "cuMemAlloc");
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = ""};
    gpu_must_fa2(fa2_context_create(&config, &context), "fa2_context_create");
    printf("%s, seed %d\n", device.card.name, SEED);
    for (far_dimension which = FAR_BATCH; which < FAR_DIMENSIONS; which++)
        run(&device, context, which, arena);
    fa2_context_destroy(context);
    gpu_must(&device, device.cuda->mem_free(arena), "cuMemFree");
    fa2i_device_leave(&device);
    fa2i_device_close(&device);
    return check_done();
}
