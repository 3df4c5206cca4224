/*
 * A short linked list: a context uses few kernels, and searches the list only while it prepares a plan.
 *
 * - driver_result and the state describe the last attempt to load.
 * - A driver that is older than the compiler may refuse all code that this compiler or a newer one makes for a target.
 *   Such code is not tried again for each kernel.
 * - `loaded` holds driver objects only in the state FA2I_SLOT_LOADED, so unloading needs no special case.
 */
#include "runtime/plan/kernels.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/shown.h"
#include "runtime/cuda/compile.h"

enum { LOG_CHARS = 400 /* so much of a compiler's log goes into a message */ };

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

/* Errors by which a driver refuses code. */
static const struct code_refusal {
    CUresult result;
    const char *name;
    bool of_target; /* true: the driver refuses all code for the target; false: this kernel's code only */
} code_refusals[] = {
#define REFUSAL(name, of_target)                                                                                       \
    {                                                                                                                  \
        name, #name, of_target                                                                                         \
    }
    REFUSAL(CUDA_ERROR_NO_BINARY_FOR_GPU, true),      REFUSAL(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, true),
    REFUSAL(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, true), REFUSAL(CUDA_ERROR_JIT_COMPILATION_DISABLED, true),
    REFUSAL(CUDA_ERROR_INVALID_IMAGE, false),         REFUSAL(CUDA_ERROR_INVALID_PTX, false),
#undef REFUSAL
};

static const struct code_refusal *find_code_refusal(CUresult result)
{
    for (size_t i = 0; i < sizeof code_refusals / sizeof *code_refusals; i++)
        if (code_refusals[i].result == result)
            return &code_refusals[i];
    return NULL;
}

bool fa2i_kernels_has_refused_code(const fa2i_slot *slot)
{
    return slot->state == FA2I_SLOT_REFUSED && find_code_refusal(slot->driver_result) != NULL;
}

fa2_status fa2i_kernels_fail(const fa2i_slot *slot)
{
    return fa2i_fail(slot->refusal, "%s", slot->why);
}

fa2_status fa2i_kernels_fail_compile(const fa2i_kernel *kernel)
{
    char log[LOG_CHARS + 1] = ""; /* the beginning of the log */
    if (kernel->log != NULL)
        fa2i_shown_append(log, sizeof log, kernel->log, true);
    return fa2i_fail_log(FA2_E_COMPILE, log, "%s: it does not compile for %s%s", kernel->variant.text, kernel->target,
                         log[0] == '\0' ? ", as its record says" : ": ");
}

static const fa2i_refused_code *find_refused(const fa2i_kernels *kernels, const char *target)
{
    for (int i = 0; i < kernels->refused_count; i++)
        if (strcmp(kernels->refused[i].target, target) == 0)
            return &kernels->refused[i];
    return NULL;
}

void fa2i_kernels_note_refused(fa2i_kernels *kernels, const char *target, int nvrtc, CUresult result)
{
    const fa2i_refused_code *known = find_refused(kernels, target);
    const int at = known != NULL ? (int)(known - kernels->refused) : kernels->refused_count;
    if (at == FA2I_REFUSED_CODES || (known != NULL && known->nvrtc <= nvrtc))
        return;
    fa2i_refused_code *to = &kernels->refused[at];
    *to = (fa2i_refused_code){.nvrtc = nvrtc, .result = result};
    snprintf(to->target, sizeof to->target, "%s", target);
    kernels->refused_count += known == NULL;
}

bool fa2i_kernels_refuses(const fa2i_kernels *kernels, const char *target, int nvrtc)
{
    const fa2i_refused_code *known = find_refused(kernels, target);
    return known != NULL && nvrtc >= known->nvrtc;
}

/* Refuses an artifact because the driver refuses all code like it. The message is the same for each. */
static fa2_status refuse_code(fa2i_slot *slot, const fa2i_kernel *kernel, fa2_status refusal)
{
    (void)fa2i_fail(refusal, "%s: the driver refuses its %s code (%s)", kernel->variant.text, kernel->target,
                    find_code_refusal(slot->driver_result)->name);
    snprintf(slot->target, sizeof slot->target, "%s", kernel->target);
    fa2i_kernels_refuse(slot, &kernel->variant, refusal);
    return refusal;
}

/* Refuses code that the driver is already known to refuse. Returns false if that is not known. */
static bool refuse_known(const fa2i_kernels *kernels, fa2i_slot *slot, const fa2i_kernel *kernel)
{
    if (!fa2i_kernels_refuses(kernels, kernel->target, kernel->nvrtc))
        return false;
    slot->driver_result = find_refused(kernels, kernel->target)->result;
    (void)refuse_code(slot, kernel, FA2_E_CUDA);
    slot->told = true;
    return true;
}

/* Returns whether the fault is this kernel's, not the device's or the process's. */
static bool is_refusal(fa2_status st, CUresult result)
{
    if (st == FA2_E_UNSUPPORTED || find_code_refusal(result) != NULL)
        return true;
    switch ((int)result) {
    case CUDA_ERROR_INVALID_VALUE: /* the kernel needs more shared memory than the device grants */
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_NOT_FOUND: /* the image lacks the entry point */
        return true;
    default:
        return false;
    }
}

static void describe(fa2i_slot *slot, const fa2i_kernel *kernel)
{
    snprintf(slot->target, sizeof(slot->target), "%s", kernel->target);
    slot->spill_bytes = kernel->spill_bytes;
    slot->spills = fa2i_kernel_spills(kernel);
}

/* Adds registers and spills of PTX to the record. The driver compiles PTX, so they are known only after loading. */
static void learn_of_ptx(const fa2i_loaded *loaded, fa2i_kernel *kernel)
{
    if (!fa2i_target_is_ptx(kernel->target))
        return;
    kernel->registers = loaded->registers;
    kernel->spill_bytes = loaded->local_bytes;
}

fa2_status fa2i_kernels_predict(const fa2i_kernels *kernels, fa2i_slot *slot, const fa2i_kernel *kernel)
{
    assert(slot->state != FA2I_SLOT_LOADED);
    if (refuse_known(kernels, slot, kernel))
        return fa2i_kernels_fail(slot);
    const fa2_status st = fa2i_loaded_check_card(&kernel->variant, &kernels->device->card);
    if (st != FA2_OK) {
        fa2i_kernels_refuse(slot, &kernel->variant, st);
        return st;
    }
    slot->loaded = (fa2i_loaded){.variant = kernel->variant, .registers = kernel->registers};
    describe(slot, kernel);
    slot->state = FA2I_SLOT_PREDICTED;
    return FA2_OK;
}

/* Remembers why the driver did not take an artifact. */
static fa2_status take_refusal(fa2i_kernels *kernels, fa2i_slot *slot, const fa2i_kernel *kernel, fa2_status refusal)
{
    const struct code_refusal *said = find_code_refusal(slot->driver_result);
    if (said != NULL && said->of_target) {
        fa2i_kernels_note_refused(kernels, kernel->target, kernel->nvrtc, said->result);
        return refuse_code(slot, kernel, refusal);
    }
    snprintf(slot->target, sizeof slot->target, "%s", kernel->target);
    fa2i_kernels_refuse(slot, &kernel->variant, refusal);
    return refusal;
}

fa2_status fa2i_kernels_load(fa2i_kernels *kernels, fa2i_slot *slot, fa2i_kernel *kernel)
{
    assert(slot->state != FA2I_SLOT_LOADED);
    if (refuse_known(kernels, slot, kernel))
        return fa2i_kernels_fail(slot);
    slot->driver_result = CUDA_SUCCESS;
    fa2_status st = fa2i_load(kernels->device, kernel, &slot->loaded, &slot->driver_result);
    if (st != FA2_OK) {
        if (is_refusal(st, slot->driver_result))
            return take_refusal(kernels, slot, kernel, st);
        return st;
    }
    learn_of_ptx(&slot->loaded, kernel);
    describe(slot, kernel);
    slot->state = FA2I_SLOT_LOADED;
    return FA2_OK;
}

void fa2i_kernels_refuse(fa2i_slot *slot, const fa2i_variant *variant, fa2_status refusal)
{
    slot->loaded = (fa2i_loaded){.variant = *variant};
    slot->state = FA2I_SLOT_REFUSED;
    slot->refusal = refusal;
    snprintf(slot->why, sizeof slot->why, "%s", fa2_last_message());
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
