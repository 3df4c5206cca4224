/*
 * The kernels that a context has loaded on its device: one slot per artifact key, shared by all plans that use the
 * artifact. A slot also remembers that a kernel cannot be used, so that the log reports each fault once.
 *
 * Not thread-safe: the planner's caller holds the lock. A loaded slot does not change, and may be read without it.
 * Ownership: slots and their contents stay at one address until fa2i_kernels_done.
 */
#pragma once

#include "runtime/base/status.h"
#include "runtime/cuda/loaded.h"

typedef enum fa2i_slot_state {
    FA2I_SLOT_EMPTY = 0, /* not tried yet, or its code was not available */
    FA2I_SLOT_PREDICTED, /* its code is available, and is not on the device */
    FA2I_SLOT_LOADED,
    FA2I_SLOT_REFUSED /* the compiler, the driver or the device refuses it */
} fa2i_slot_state;

typedef struct fa2i_slot {
    fa2i_key key;
    fa2i_slot_state state;
    bool told;                    /* the log says that it cannot be used */
    fa2_status refusal;           /* if refused: the status */
    char why[FA2I_MESSAGE_BYTES]; /* if refused: the message */
    CUresult driver_result;       /* the driver's error; CUDA_SUCCESS if something else refused it */
    fa2i_loaded loaded;           /* unless FA2I_SLOT_LOADED: what is known of it without the driver */
    bool compiled;                /* compiled here, because the database had no valid code of it */
    char target[16];
    int spill_bytes; /* per thread */
    int spills;      /* fa2i_kernel_spills */
    struct fa2i_slot *next;
} fa2i_slot;

/* The driver refuses all code for this target from this compiler or a newer one. */
typedef struct fa2i_refused_code {
    char target[16];
    int nvrtc; /* version of the compiler */
    CUresult result;
} fa2i_refused_code;

enum { FA2I_REFUSED_CODES = 4 /* are remembered; code of any other target is tried each time */ };

typedef struct fa2i_kernels {
    const fa2i_device *device; /* borrowed */
    fa2i_slot *first;
    fa2i_refused_code refused[FA2I_REFUSED_CODES];
    int refused_count;
} fa2i_kernels;

/* Finds the slot of a key, or makes an empty one. Borrowed. NULL if out of memory. */
fa2i_slot *fa2i_kernels_slot(fa2i_kernels *kernels, const fa2i_key *key);

/* Remembers that the driver refuses code for this target made by this NVRTC (fa2i_kernel.nvrtc) or a newer one. */
void fa2i_kernels_note_refused(fa2i_kernels *kernels, const char *target, int nvrtc, CUresult result);

/* Returns whether the driver is known to refuse such code. */
bool fa2i_kernels_refuses(const fa2i_kernels *kernels, const char *target, int nvrtc);

/* Loads an artifact into its slot, which is not loaded yet. The record of PTX gets the registers and spills that the
 * driver found. Fails with the status of fa2i_load:
 * - If the fault is this kernel's, the slot becomes FA2I_SLOT_REFUSED, and trying another kernel makes sense.
 * - If it is not (no memory, a broken context), the slot is unchanged.
 *
 * Code that the driver is known to refuse is refused without trying. slot->told is set then, because the log reported
 * the first such refusal. */
fa2_status fa2i_kernels_load(fa2i_kernels *kernels, fa2i_slot *slot, fa2i_kernel *kernel);

/* Fills a slot that is not loaded from an artifact's record. The slot becomes FA2I_SLOT_PREDICTED, or refused if
 * loading would be refused. */
fa2_status fa2i_kernels_predict(const fa2i_kernels *kernels, fa2i_slot *slot, const fa2i_kernel *kernel);

/* Makes a slot FA2I_SLOT_REFUSED, for the reason in the last message. Trying again would fail again. */
void fa2i_kernels_refuse(fa2i_slot *slot, const fa2i_variant *variant, fa2_status refusal);

/* Returns whether the driver refused the slot's code. It may take code that was made in another way. */
bool fa2i_kernels_has_refused_code(const fa2i_slot *slot);

/* Sets the last message to why a slot was refused. Returns slot->refusal. */
fa2_status fa2i_kernels_fail(const fa2i_slot *slot);

/* Returns FA2_E_COMPILE, with the compiler's message for an artifact that it rejected. */
fa2_status fa2i_kernels_fail_compile(const fa2i_kernel *kernel);

void fa2i_kernels_done(fa2i_kernels *kernels); /* zeroed objects are fine */
