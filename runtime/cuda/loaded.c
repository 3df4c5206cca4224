/*
 * Loading does everything that the first launch would otherwise do: it opts in to shared memory and finalises the code
 * (cuFuncLoad; older drivers finalise when they load).
 */
#include "runtime/cuda/loaded.h"

#include <stdlib.h>
#include <string.h>
#include "runtime/cuda/tensor_map.h"

enum {
    SMEM_WITHOUT_OPT_IN = 48 * 1024, /* CUDA's limit on every SM without opting in */
    CLUSTER_WITHOUT_OPT_IN = 8,      /* blocks; every SM with clusters allows this many */
    WAITING_ARCH = 90,               /* from this SM on, code has an instruction to wait for another grid */
    WAITING_DRIVER = 12030,          /* from this version on, captured launches keep the attribute to begin early */
    JIT_LOG_BYTES = 1024
};

/* The state while a kernel is loaded. */
typedef struct loading {
    const fa2i_device *device;
    const char *target; /* target of the kernel */
    fa2i_loaded loaded;
    CUresult result; /* result of the last driver call */
} loading;

static fa2_status check(loading *l, CUresult result, const char *what)
{
    l->result = result;
    return fa2i_cuda_check(l->device->cuda, result, what);
}

fa2_status fa2i_loaded_check_card(const fa2i_variant *variant, const fa2i_card *card)
{
    const fa2i_recipe *recipe = &variant->recipe;
    for (int i = 0; i < recipe->step_count; i++) {
        const fa2i_step *step = &recipe->steps[i];
        if (step->smem_bytes > card->smem_block_bytes)
            return fa2i_fail(FA2_E_UNSUPPORTED, "%s: %s needs %d bytes of shared memory per block; %s has %d",
                             variant->text, step->entry, step->smem_bytes, card->name, card->smem_block_bytes);
    }
    return FA2_OK;
}

/* Checks what is known of the driver without asking it. */
static fa2_status check_step(const fa2i_device *device, const fa2i_recipe *recipe, const fa2i_step *step,
                             const char *variant)
{
    if (recipe->map_count > 0 && device->cuda->tensor_map_encode_tiled == NULL)
        return fa2i_fail(FA2_E_UNSUPPORTED,
                         "%s: %s reads tensor maps, and this driver has no cuTensorMapEncodeTiled: "
                         "it needs one for CUDA 12.0 or newer",
                         variant, step->entry);
    if (step->cluster > 1 && device->cuda->launch_kernel_ex == NULL)
        return fa2i_fail(FA2_E_UNSUPPORTED,
                         "%s: %s runs in clusters of %d blocks, and this driver has no "
                         "cuLaunchKernelEx: it needs one for CUDA 11.8 or newer",
                         variant, step->entry, step->cluster);
    return FA2_OK;
}

static fa2_status load_module(loading *l, const fa2i_kernel *kernel)
{
    const fa2i_cuda_table *cuda = l->device->cuda;
    char log[JIT_LOG_BYTES] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log}; /* CUDA passes numbers as pointers */
    const fa2_status st = check(l, cuda->module_load_data_ex(&l->loaded.module, kernel->image.data, 2, options, values),
                                "cuModuleLoadDataEx");
    if (st == FA2_OK)
        return FA2_OK;
    log[sizeof log - 1] = '\0';
    fa2i_fail_prefix(st, "%s: loading it for %s", kernel->variant.text, kernel->target);
    return log[0] == '\0' ? st : fa2i_fail_log(st, log, "%s\n", fa2_last_message());
}

static fa2_status find_function(loading *l, const fa2i_step *step, CUfunction *ret_function)
{
    const fa2i_cuda_table *cuda = l->device->cuda;
    const fa2_status st =
        check(l, cuda->module_get_function(ret_function, l->loaded.module, step->entry), "cuModuleGetFunction");
    return st == FA2_OK ? FA2_OK : fa2i_fail_prefix(st, "entry point %s", step->entry);
}

/* Returns whether a launch may begin early. The code must wait for the step before, which depends on its target, and
 * the driver must support the attribute. */
static bool begins_early(const loading *l, const fa2i_step *step)
{
    const char *number = strchr(l->target, '_'); /* after sm_ or compute_ */
    return step->early && number != NULL && atoi(number + 1) >= WAITING_ARCH && l->device->driver >= WAITING_DRIVER &&
           l->device->cuda->launch_kernel_ex != NULL;
}

/* Allows the function what its step needs, and finalises its code. A step that begins early shares SMs with the step
 * before it. So it asks for the largest shared memory, too, even if it uses none. */
static fa2_status prepare_function(loading *l, const fa2i_step *step, CUfunction function)
{
    const fa2i_cuda_table *cuda = l->device->cuda;
    fa2_status st = FA2_OK;
    if (step->smem_bytes > SMEM_WITHOUT_OPT_IN)
        FA2_TRY(check(
            l, cuda->func_set_attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, step->smem_bytes),
            "opting in to shared memory"));
    if (step->smem_bytes > 0 || begins_early(l, step))
        FA2_TRY(check(l,
                      cuda->func_set_attribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                               CU_SHAREDMEM_CARVEOUT_MAX_SHARED),
                      "preferring shared memory to L1"));
    if (step->cluster > CLUSTER_WITHOUT_OPT_IN)
        FA2_TRY(check(l, cuda->func_set_attribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
                      "opting in to large clusters"));
    if (cuda->func_load != NULL)
        FA2_TRY(check(l, cuda->func_load(function), "cuFuncLoad"));
done:
    return st;
}

/* Reads the function's resources from the driver. Fails if no SM can hold a block. */
static fa2_status inspect_function(loading *l, const fa2i_step *step, CUfunction function)
{
    const fa2i_cuda_table *cuda = l->device->cuda;
    fa2i_loaded *loaded = &l->loaded;
    int registers = 0, local_bytes = 0, blocks_per_sm = 0;
    fa2_status st = FA2_OK;
    FA2_TRY(check(l, cuda->func_get_attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function),
                  "reading the register count"));
    FA2_TRY(check(l, cuda->func_get_attribute(&local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function),
                  "reading the local memory size"));
    FA2_TRY(check(l, cuda->occupancy_max_blocks(&blocks_per_sm, function, step->threads, (size_t)step->smem_bytes),
                  "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
    if (blocks_per_sm < 1)
        FA2_TRY(fa2i_fail(FA2_E_UNSUPPORTED,
                          "%s: no SM of %s can hold a block of %d threads with %d registers each "
                          "and %d bytes of shared memory, as %s needs",
                          loaded->variant.text, l->device->card.name, step->threads, registers, step->smem_bytes,
                          step->entry));
    if (step == fa2i_recipe_main(&loaded->variant.recipe)) {
        loaded->registers = registers;
        loaded->local_bytes = local_bytes;
        loaded->blocks_per_sm = blocks_per_sm;
    }
done:
    return st;
}

static fa2_status load_step(loading *l, int index)
{
    const fa2i_step *step = &l->loaded.variant.recipe.steps[index];
    fa2i_loaded_step *to = &l->loaded.steps[index];
    fa2_status st = FA2_OK;
    FA2_TRY(find_function(l, step, &to->function));
    FA2_TRY(prepare_function(l, step, to->function));
    FA2_TRY(inspect_function(l, step, to->function));
    to->threads = (unsigned)step->threads;
    to->smem_bytes = (unsigned)step->smem_bytes;
    to->cluster = (unsigned)step->cluster;
    to->early = begins_early(l, step);
done:
    return st;
}

fa2_status fa2i_load(const fa2i_device *device, const fa2i_kernel *kernel, fa2i_loaded *ret_loaded,
                     CUresult *ret_driver_result)
{
    const fa2i_recipe *recipe = &kernel->variant.recipe;
    fa2_status st = FA2_OK;
    loading l = {.device = device, .target = kernel->target, .loaded.variant = kernel->variant};
    bool entered = false;
    if (kernel->image.data == NULL)
        return fa2i_fail(FA2_E_COMPILE, "%s has no code: %s", kernel->variant.text,
                         kernel->log != NULL ? kernel->log : "it was not compiled");
    FA2_TRY(fa2i_loaded_check_card(&kernel->variant, &device->card));
    for (int i = 0; i < recipe->step_count; i++)
        FA2_TRY(check_step(device, recipe, &recipe->steps[i], kernel->variant.text));
    FA2_TRY(fa2i_device_enter(device));
    entered = true;
    FA2_TRY(load_module(&l, kernel));
    if (recipe->map_count > 0) {
        l.loaded.maps = fa2i_kept_maps_create();
        st = l.loaded.maps == NULL ? FA2_E_MEMORY : FA2_OK;
        if (st != FA2_OK)
            goto done;
    }
    for (int i = 0; i < recipe->step_count; i++)
        FA2_TRY(load_step(&l, i));
    *ret_loaded = l.loaded;
    l.loaded.module = NULL; /* ownership has moved to the caller */
    l.loaded.maps = NULL;
done:
    fa2i_kept_maps_destroy(l.loaded.maps);
    if (l.loaded.module != NULL)
        (void)device->cuda->module_unload(l.loaded.module);
    if (entered)
        fa2i_device_leave(device);
    if (ret_driver_result != NULL)
        *ret_driver_result = l.result;
    return st;
}

void fa2i_unload(const fa2i_device *device, fa2i_loaded *loaded)
{
    /* Without its context the module is gone already, and no error can be reported. */
    if (loaded->module != NULL && fa2i_device_enter(device) == FA2_OK) {
        (void)device->cuda->module_unload(loaded->module);
        fa2i_device_leave(device);
    }
    fa2i_kept_maps_destroy(loaded->maps);
    *loaded = (fa2i_loaded){0};
}
