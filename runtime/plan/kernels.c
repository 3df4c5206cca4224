/*
 * A short linked list: a context uses few kernels, and looks here only while it prepares a plan.
 *
 * - driver_result and the state say what happened in the last attempt to load.
 * - loaded holds nothing of the driver's unless the state is FA2I_SLOT_LOADED, so that unloading needs no case.
 */
#include "runtime/plan/kernels.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"

fa2i_slot *fa2i_kernels_slot(fa2i_kernels *kernels, const fa2i_key *key)
{
    for (fa2i_slot *slot = kernels->first; slot != NULL; slot = slot->next)
        if (memcmp(&slot->key, key, sizeof(*key)) == 0)
            return slot;

    fa2i_slot *slot = fa2i_alloc(sizeof(*slot));
    if (slot == NULL)
        return NULL;
    slot->key = *key;
    slot->next = kernels->first;
    kernels->first = slot;
    return slot;
}

/* Is the fault this kernel's, rather than the device's or the process's? */
static bool is_refusal(fa2_status st, CUresult result)
{
    if (st == FA2_E_UNSUPPORTED)
        return true;
    switch ((int)result) {
    case CUDA_ERROR_INVALID_VALUE: /* more shared memory than the device grants */
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_NOT_FOUND: /* the image lacks the entry point */
        return true;
    default:
        return false;
    }
}

/* What PTX spills is known only to the driver, once it has compiled it. */
static void describe(fa2i_slot *slot, const fa2i_kernel *kernel)
{
    const bool ptx = strncmp(kernel->target, "compute_", strlen("compute_")) == 0;
    snprintf(slot->target, sizeof(slot->target), "%s", kernel->target);
    slot->spill_bytes = ptx ? slot->loaded.local_bytes : kernel->spill_bytes;
    slot->spills = ptx ? slot->loaded.local_bytes : fa2i_kernel_spills(kernel);
}

void fa2i_kernels_foresee(fa2i_slot *slot, const fa2i_kernel *kernel)
{
    assert(slot->state != FA2I_SLOT_LOADED);
    slot->loaded = (fa2i_loaded){.variant = kernel->variant, .registers = kernel->registers};
    describe(slot, kernel);
    slot->state = FA2I_SLOT_FORESEEN;
}

fa2_status fa2i_kernels_load(fa2i_kernels *kernels, fa2i_slot *slot, const fa2i_kernel *kernel)
{
    assert(slot->state != FA2I_SLOT_LOADED);
    slot->driver_result = CUDA_SUCCESS;
    fa2_status st = fa2i_load(kernels->device, kernel, &slot->loaded, &slot->driver_result);
    if (st != FA2_OK) {
        if (is_refusal(st, slot->driver_result))
            fa2i_kernels_refuse(slot, &kernel->variant, st);
        return st;
    }
    describe(slot, kernel);
    slot->state = FA2I_SLOT_LOADED;
    return FA2_OK;
}

void fa2i_kernels_refuse(fa2i_slot *slot, const fa2i_variant *variant, fa2_status refusal)
{
    slot->loaded = (fa2i_loaded){.variant = *variant};
    slot->state = FA2I_SLOT_REFUSED;
    slot->refusal = refusal;
}

void fa2i_kernels_done(fa2i_kernels *kernels)
{
    while (kernels->first != NULL) {
        fa2i_slot *slot = kernels->first;
        kernels->first = slot->next;
        fa2i_unload(kernels->device, &slot->loaded);
        fa2i_free(slot);
    }
}
