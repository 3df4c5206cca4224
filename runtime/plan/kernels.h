/*
 * The kernels that a context has put on its device, one slot per artifact key, shared by all plans
 * that use the artifact. A slot also remembers that a kernel cannot be used, so that the same
 * fault is told once.
 *
 * Not thread-safe: the planner's caller holds the lock. A loaded slot does not change any more, and
 * may be read without it.
 * Ownership. Slots and what they hold live, at one address, until fa2i_kernels_done.
 */
#ifndef FA2I_KERNELS_H
#define FA2I_KERNELS_H

#include "runtime/base/status.h"
#include "runtime/cuda/loaded.h"

typedef enum fa2i_slot_state {
    FA2I_SLOT_EMPTY = 0, /* not tried yet, or not to be had then */
    FA2I_SLOT_FORESEEN,  /* its code is to be had, and is not on the device */
    FA2I_SLOT_LOADED,
    FA2I_SLOT_REFUSED /* the compiler, the driver or the device will not take it */
} fa2i_slot_state;

typedef struct fa2i_slot {
    fa2i_key key;
    fa2i_slot_state state;
    bool told;                    /* the log knows that it cannot be used */
    fa2_status refusal;           /* why it was refused, */
    char why[FA2I_MESSAGE_BYTES]; /* in the words of then */
    CUresult driver_result;       /* by the driver; CUDA_SUCCESS: by another */
    fa2i_loaded loaded;           /* unless FA2I_SLOT_LOADED: what is known of it without the driver */
    bool compiled;                /* here: the database had no sound code of it */
    char target[16];
    int spill_bytes;              /* per thread */
    int spills;                   /* fa2i_kernel_spills */
    struct fa2i_slot *next;
} fa2i_slot;

/* Code that the driver refuses for what it is made for, whatever the kernel. */
typedef struct fa2i_refused_code {
    char target[16];
    int nvrtc; /* made by this compiler, or a newer one */
    CUresult result;
} fa2i_refused_code;

enum { FA2I_REFUSED_CODES = 4 /* that are remembered; each beyond them is tried */ };

typedef struct fa2i_kernels {
    const fa2i_device *device; /* borrowed */
    fa2i_slot *first;
    fa2i_refused_code refused[FA2I_REFUSED_CODES];
    int refused_count;
} fa2i_kernels;

/* Find the slot of a key, or make an empty one. Borrowed; NULL when out of memory. */
fa2i_slot *fa2i_kernels_slot(fa2i_kernels *kernels, const fa2i_key *key);

/* Remember that the driver refuses code for this target, made by this NVRTC (fa2i_kernel.nvrtc) or a newer one. */
void fa2i_kernels_note_refused(fa2i_kernels *kernels, const char *target, int nvrtc,
                               CUresult result);

/* Is it known to refuse that? */
bool fa2i_kernels_refuses(const fa2i_kernels *kernels, const char *target, int nvrtc);

/* Load an artifact into its slot, which is not loaded yet. On failure the status of fa2i_load; the
 * slot's state is then FA2I_SLOT_REFUSED if the fault is this kernel's, and unchanged if it is not
 * (no memory, a broken context): trying another kernel makes sense only after the former. Code that
 * the driver is known to refuse is refused without a try, and without a word (slot->told): the first one says it.
 * The record of PTX gets the registers and spills that the driver found. */
fa2_status fa2i_kernels_load(fa2i_kernels *kernels, fa2i_slot *slot, fa2i_kernel *kernel);

/* Let a slot that is not loaded be FA2I_SLOT_FORESEEN, with what an artifact's record says; or refused, as loading it
 * would be. */
fa2_status fa2i_kernels_foresee(const fa2i_kernels *kernels, fa2i_slot *slot,
                                const fa2i_kernel *kernel);

/* Let a slot be FA2I_SLOT_REFUSED, for the reason in the last message: trying it again would fail again. */
void fa2i_kernels_refuse(fa2i_slot *slot, const fa2i_variant *variant, fa2_status refusal);

/* Was the slot's code refused by the driver, so that code made otherwise may be taken? */
bool fa2i_kernels_has_refused_code(const fa2i_slot *slot);

/* Say, as the last message, why a slot was refused; returns its refusal. */
fa2_status fa2i_kernels_fail(const fa2i_slot *slot);

/* FA2_E_COMPILE, with what the compiler said of an artifact that it rejected. */
fa2_status fa2i_kernels_fail_compile(const fa2i_kernel *kernel);

void fa2i_kernels_done(fa2i_kernels *kernels); /* zeroed objects are fine */

#endif
