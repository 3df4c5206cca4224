/*
 * Loading an artifact, checking a call's arguments, launching.
 *
 * - A kernel is loaded so far that the first launch does nothing more: shared memory opted in, code
 *   finalised (cuFuncLoad; older drivers finalise at load).
 * - fa2i_launch_forward trusts fa2i_forward_args_check and fa2i_problem_check: it only computes.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/status.h"
#include "runtime/cuda/launch.h"

enum {
    ROW_ALIGN_BYTES = 16,
    ROW_ALIGN_ELEMS = 8,
    WORKSPACE_ALIGN_BYTES = 256,
    SMEM_WITHOUT_OPT_IN = 48 * 1024, /* CUDA's static limit on every SM */
    JIT_LOG_BYTES = 1024,
    COMBINE_THREADS = 128 /* kCombineWarps in templates/forward/combine.cu.in */
};

_Static_assert(sizeof(fa2i_forward_params) == 192, "mirrors struct Params in templates");

/* ---- loading ---- */

static fa2_status load_module(const fa2i_device *device, const fa2i_kernel *kernel,
                              CUmodule *ret_module, CUresult *result)
{
    char log[JIT_LOG_BYTES] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log}; /* CUDA passes numbers as pointers */

    *result = device->cuda->module_load_data_ex(ret_module, kernel->image.data, 2, options, values);
    if (*result == CUDA_SUCCESS)
        return FA2_OK;
    (void)fa2i_cuda_check(device->cuda, *result, "cuModuleLoadDataEx");
    log[sizeof log - 1] = '\0';
    fa2i_fail_prefix(FA2_E_CUDA, "loading %s for %s", kernel->variant.text, kernel->target);
    return log[0] == '\0' ? FA2_E_CUDA : fa2i_fail(FA2_E_CUDA, "%s\n%s", fa2_last_message(), log);
}

static fa2_status find_function(const fa2i_device *device, CUmodule module, const char *name,
                                CUfunction *ret_function, CUresult *result)
{
    *result = device->cuda->module_get_function(ret_function, module, name);
    const fa2_status st = fa2i_cuda_check(device->cuda, *result, "cuModuleGetFunction");
    return st == FA2_OK ? FA2_OK : fa2i_fail_prefix(st, "entry point %s", name);
}

/* The entry points are called after the family, the first word of the variant. */
static fa2_status find_entries(const fa2i_device *device, fa2i_loaded *loaded, CUresult *result)
{
    char name[FA2I_VARIANT_CHARS + sizeof "_combine"];
    const char *text = loaded->variant.text;
    const int length = (int)strcspn(text, " ");
    fa2_status st = FA2_OK;

    snprintf(name, sizeof name, "%.*s", length, text);
    FA2_TRY(find_function(device, loaded->module, name, &loaded->function, result));
    if (loaded->variant.recipe.waves > 0) {
        snprintf(name, sizeof name, "%.*s_combine", length, text);
        FA2_TRY(find_function(device, loaded->module, name, &loaded->combine, result));
    }
done:
    return st;
}

static fa2_status finalise_code(const fa2i_device *device, CUfunction function, CUresult *result)
{
    if (device->cuda->func_load == NULL)
        return FA2_OK;
    *result = device->cuda->func_load(function);
    return fa2i_cuda_check(device->cuda, *result, "cuFuncLoad");
}

/* Let the function use its shared memory, and finalise its code. */
static fa2_status prepare_function(const fa2i_device *device, const fa2i_loaded *loaded,
                                   CUresult *result)
{
    const fa2i_cuda_table *cuda = device->cuda;
    const int smem_bytes = fa2i_recipe_main(&loaded->variant.recipe)->smem_bytes;
    fa2_status st = FA2_OK;
    if (smem_bytes > SMEM_WITHOUT_OPT_IN) {
        *result = cuda->func_set_attribute(
            loaded->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, smem_bytes);
        FA2_TRY(fa2i_cuda_check(cuda, *result, "opting in to shared memory"));
    }
    *result = cuda->func_set_attribute(loaded->function,
                                       CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                       CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
    FA2_TRY(fa2i_cuda_check(cuda, *result, "preferring shared memory to L1"));
    FA2_TRY(finalise_code(device, loaded->function, result));
    if (loaded->combine != NULL)
        FA2_TRY(finalise_code(device, loaded->combine, result));
done:
    return st;
}

/* What the driver says of the function; a kernel that no SM can hold is an error. */
static fa2_status inspect_function(const fa2i_device *device, fa2i_loaded *loaded, CUresult *result)
{
    const fa2i_cuda_table *cuda = device->cuda;
    const fa2i_step *step = fa2i_recipe_main(&loaded->variant.recipe);
    fa2_status st = FA2_OK;

    *result =
        cuda->func_get_attribute(&loaded->registers, CU_FUNC_ATTRIBUTE_NUM_REGS, loaded->function);
    FA2_TRY(fa2i_cuda_check(cuda, *result, "reading the register count"));
    *result = cuda->func_get_attribute(&loaded->local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
                                       loaded->function);
    FA2_TRY(fa2i_cuda_check(cuda, *result, "reading the local memory size"));
    *result = cuda->occupancy_max_blocks(&loaded->blocks_per_sm, loaded->function, step->threads,
                                         (size_t)step->smem_bytes);
    FA2_TRY(fa2i_cuda_check(cuda, *result, "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
    if (loaded->blocks_per_sm < 1)
        st = fa2i_fail(FA2_E_UNSUPPORTED,
                       "%s: no SM of %s can hold a block of %d threads with %d registers each and "
                       "%d bytes of shared memory",
                       loaded->variant.text, device->card.name, step->threads, loaded->registers,
                       step->smem_bytes);
done:
    return st;
}

fa2_status fa2i_load(const fa2i_device *device, const fa2i_kernel *kernel, fa2i_loaded *ret_loaded,
                     CUresult *ret_driver_result)
{
    fa2_status st = FA2_OK;
    CUresult result = CUDA_SUCCESS;
    fa2i_loaded loaded = {.variant = kernel->variant};
    bool entered = false;

    const int smem_bytes = fa2i_recipe_main(&kernel->variant.recipe)->smem_bytes;
    if (smem_bytes > device->card.smem_block_bytes) {
        st = fa2i_fail(FA2_E_UNSUPPORTED, "%s needs %d bytes of shared memory per block; %s has %d",
                       kernel->variant.text, smem_bytes, device->card.name,
                       device->card.smem_block_bytes);
        goto done;
    }
    FA2_TRY(fa2i_device_enter(device));
    entered = true;
    FA2_TRY(load_module(device, kernel, &loaded.module, &result));
    FA2_TRY(find_entries(device, &loaded, &result));
    FA2_TRY(prepare_function(device, &loaded, &result));
    FA2_TRY(inspect_function(device, &loaded, &result));
    *ret_loaded = loaded;
    loaded.module = NULL; /* ownership has moved to the caller */
done:
    if (loaded.module != NULL)
        (void)device->cuda->module_unload(loaded.module);
    if (entered)
        fa2i_device_leave(device);
    if (ret_driver_result != NULL)
        *ret_driver_result = result;
    return st;
}

void fa2i_unload(const fa2i_device *device, fa2i_loaded *loaded)
{
    /* Without its context a module is gone already, and there is nobody to tell. */
    if (loaded->module != NULL && fa2i_device_enter(device) == FA2_OK) {
        (void)device->cuda->module_unload(loaded->module);
        fa2i_device_leave(device);
    }
    *loaded = (fa2i_loaded){0};
}

/* ---- arguments ---- */

/* One dimension of one tensor. A stride that is never used (extent 1) may be anything. */
typedef struct dimension {
    const char *name;
    int64_t stride;
    int32_t extent;
    int64_t least; /* smallest stride allowed */
} dimension;

static fa2_status check_strides(const char *tensor, const dimension dimensions[3])
{
    for (int i = 0; i < 3; i++) {
        const dimension *d = &dimensions[i];
        if (d->extent == 1)
            continue;
        if (d->stride % ROW_ALIGN_ELEMS != 0)
            return fa2i_fail(FA2_E_INVALID,
                             "%s.stride_%s is %lld; it must be a multiple of %d "
                             "elements",
                             tensor, d->name, (long long)d->stride, ROW_ALIGN_ELEMS);
        if (d->stride < d->least)
            return fa2i_fail(FA2_E_INVALID, "%s.stride_%s is %lld; it must be at least %lld",
                             tensor, d->name, (long long)d->stride, (long long)d->least);
    }
    return FA2_OK;
}

/* written: no two rows may be the same memory. Read tensors may repeat batches and heads (stride
 * 0). */
static fa2_status check_tensor(const char *name, const fa2_tensor *tensor, int32_t batch,
                               int32_t seq, int32_t heads, int32_t head_dim, bool written)
{
    const int64_t repeat = written ? head_dim : 0;
    const dimension dimensions[3] = {{"batch", tensor->stride_batch, batch, repeat},
                                     {"seq", tensor->stride_seq, seq, head_dim},
                                     {"head", tensor->stride_head, heads, repeat}};
    if (tensor->data == NULL)
        return fa2i_fail(FA2_E_INVALID, "%s.data is NULL", name);
    if ((uintptr_t)tensor->data % ROW_ALIGN_BYTES != 0)
        return fa2i_fail(FA2_E_INVALID, "%s.data is %p; it must be a multiple of %d bytes", name,
                         tensor->data, ROW_ALIGN_BYTES);
    return check_strides(name, dimensions);
}

static fa2_status check_workspace(const fa2_forward_args *args)
{
    if (args->workspace == NULL && args->workspace_bytes > 0)
        return fa2i_fail(FA2_E_INVALID, "workspace is NULL, but workspace_bytes is %zu",
                         args->workspace_bytes);
    if ((uintptr_t)args->workspace % WORKSPACE_ALIGN_BYTES != 0)
        return fa2i_fail(FA2_E_INVALID, "workspace is %p; it must be a multiple of %d bytes",
                         args->workspace, WORKSPACE_ALIGN_BYTES);
    return FA2_OK;
}

fa2_status fa2i_forward_args_check(const fa2_problem *problem, const fa2_forward_args *args)
{
    const fa2_problem *p = problem;
    fa2_status st = FA2_OK;
    if (args == NULL)
        return fa2i_fail(FA2_E_INVALID, "args is NULL");
    FA2_TRY(check_tensor("q", &args->q, p->batch, p->seq_q, p->heads_q, p->head_dim, false));
    FA2_TRY(check_tensor("k", &args->k, p->batch, p->seq_k, p->heads_kv, p->head_dim, false));
    FA2_TRY(check_tensor("v", &args->v, p->batch, p->seq_k, p->heads_kv, p->head_dim, false));
    FA2_TRY(check_tensor("o", &args->o, p->batch, p->seq_q, p->heads_q, p->head_dim, true));
    if ((uintptr_t)args->lse % sizeof *args->lse != 0) {
        st = fa2i_fail(FA2_E_INVALID, "lse is %p; it must be a multiple of %zu bytes",
                       (void *)args->lse, sizeof *args->lse);
        goto done;
    }
    if (!isfinite(args->softmax_scale) || args->softmax_scale < 0) {
        st = fa2i_fail(FA2_E_INVALID,
                       "softmax_scale is %g; it must be finite and positive, or 0 for "
                       "1 / sqrt(head_dim)",
                       (double)args->softmax_scale);
        goto done;
    }
    FA2_TRY(check_workspace(args));
done:
    return st;
}

/* ---- launching ---- */

static void copy_strides(const fa2_tensor *tensor, int64_t out[3])
{
    out[0] = tensor->stride_batch;
    out[1] = tensor->stride_seq;
    out[2] = tensor->stride_head;
}

static fa2i_forward_params parameters(const fa2i_grid *grid, const fa2_problem *problem,
                                      const fa2_forward_args *args)
{
    static const double log2_e = 1.4426950408889634074;
    const double scale =
        args->softmax_scale > 0 ? (double)args->softmax_scale : 1 / sqrt((double)problem->head_dim);
    fa2i_forward_params params = {
        .q = (uintptr_t)args->q.data,
        .k = (uintptr_t)args->k.data,
        .v = (uintptr_t)args->v.data,
        .o = (uintptr_t)args->o.data,
        .lse = (uintptr_t)args->lse,
        .scale = (float)scale,
        .scale_log2 = (float)(scale * log2_e),
        .seq_q = problem->seq_q,
        .seq_k = problem->seq_k,
        .heads_q = problem->heads_q,
        .group = problem->heads_q / problem->heads_kv,
        .q_tiles = grid->row_tiles,
        .splits = grid->splits,
        .batch = problem->batch,
    };
    if (grid->splits > 1) {
        params.partial = (uintptr_t)args->workspace;
        params.partial_lse = params.partial + grid->partial_bytes;
    }
    copy_strides(&args->q, params.q_stride);
    copy_strides(&args->k, params.k_stride);
    copy_strides(&args->v, params.v_stride);
    copy_strides(&args->o, params.o_stride);
    return params;
}

fa2_status fa2i_launch_forward(const fa2i_device *device, const fa2i_loaded *loaded,
                               const fa2i_grid *grid, const fa2_problem *problem,
                               const fa2_forward_args *args, CUstream stream)
{
    const fa2i_cuda_table *cuda = device->cuda;
    const fa2i_step *step = fa2i_recipe_main(&loaded->variant.recipe);
    fa2i_forward_params params = parameters(grid, problem, args);
    void *arguments[] = {&params};

    CUresult result =
        cuda->launch_kernel(loaded->function, grid->blocks, 1, 1, (unsigned)step->threads, 1, 1,
                            (unsigned)step->smem_bytes, stream, arguments, NULL);
    if (result == CUDA_SUCCESS && grid->combine_blocks > 0)
        result = cuda->launch_kernel(loaded->combine, grid->combine_blocks, 1, 1, COMBINE_THREADS,
                                     1, 1, 0, stream, arguments, NULL);
    return fa2i_cuda_check(cuda, result, "cuLaunchKernel");
}
