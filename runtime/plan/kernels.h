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

#include "runtime/cuda/loaded.h"

typedef enum fa2i_slot_state {
    FA2I_SLOT_EMPTY = 0, /* not tried yet, or not to be had then */
    FA2I_SLOT_FORESEEN,  /* its code is to be had, and is not on the device */
    FA2I_SLOT_LOADED,
    FA2I_SLOT_REFUSED /* the compiler, the driver or the device will not take it */
} fa2i_slot_state;

/* Where code comes from. */
typedef enum fa2i_origin {
    FA2I_ORIGIN_STORED = 0, /* the database */
    FA2I_ORIGIN_COMPILED,
    FA2I_ORIGIN_REMADE /* compiled, for what the database has of it is damaged or missing */
} fa2i_origin;

typedef struct fa2i_slot {
    fa2i_key key;
    fa2i_slot_state state;
    bool told;              /* the log knows that it cannot be used */
    fa2_status refusal;     /* why it was refused */
    CUresult driver_result; /* by the driver; CUDA_SUCCESS: by another */
    fa2i_loaded loaded;     /* unless FA2I_SLOT_LOADED: what is known of it without the driver */
    fa2i_origin origin;
    char target[16];
    int spill_bytes; /* per thread */
    int spills;      /* fa2i_kernel_spills */
    struct fa2i_slot *next;
} fa2i_slot;

typedef struct fa2i_kernels {
    const fa2i_device *device; /* borrowed */
    fa2i_slot *first;
} fa2i_kernels;

/* Find the slot of a key, or make an empty one. Borrowed; NULL when out of memory. */
fa2i_slot *fa2i_kernels_slot(fa2i_kernels *kernels, const fa2i_key *key);

/* Load an artifact into its slot, which is not loaded yet. On failure the status of fa2i_load; the
 * slot's state is then FA2I_SLOT_REFUSED if the fault is this kernel's, and unchanged if it is not
 * (no memory, a broken context): trying another kernel makes sense only after the former. */
fa2_status fa2i_kernels_load(fa2i_kernels *kernels, fa2i_slot *slot, const fa2i_kernel *kernel);

/* Let a slot that is not loaded be FA2I_SLOT_FORESEEN, with what an artifact's record says. */
void fa2i_kernels_foresee(fa2i_slot *slot, const fa2i_kernel *kernel);

/* Let a slot be FA2I_SLOT_REFUSED: trying it again would fail again. */
void fa2i_kernels_refuse(fa2i_slot *slot, const fa2i_variant *variant, fa2_status refusal);

void fa2i_kernels_done(fa2i_kernels *kernels); /* zeroed objects are fine */

#endif
