/*
 * From CUDA text to an artifact, by NVRTC. Needs no GPU. Thread-safe: NVRTC runs in the calling
 * thread, and several threads may compile at once. The locale is C while NVRTC runs.
 */
#ifndef FA2I_COMPILE_H
#define FA2I_COMPILE_H

#include "runtime/base/record.h"

/* What code is made for: "sm_86" gives a cubin, "compute_86" PTX that the driver compiles. A recipe's
 * suffix goes behind it when a kernel is compiled. */
typedef struct fa2i_target {
    char name[16];
    bool ptx;
    int nvrtc; /* version of the compiler that was asked, or that made the code (1000 * major + 10 * minor); 0: none */
} fa2i_target;

/* The target for an SM: its cubin; PTX if as_ptx, or if NVRTC does not know the SM (then for the newest
 * one below it that NVRTC knows). FA2_E_NO_NVRTC; FA2_E_UNSUPPORTED if it knows none. */
fa2_status fa2i_target_for(int arch, bool as_ptx, fa2i_target *ret_target);

/* The target of code that there is, of a record: "sm_90" or "compute_90", by this NVRTC. */
void fa2i_target_of(const char *name, int nvrtc, fa2i_target *ret_target);

/* Is the target of this name PTX? */
bool fa2i_target_is_ptx(const char *name);

/* The artifact key: hash of source, compiler options, target, NVRTC version, class and recipe: variants that
 * differ in how they are launched alone, or in the class that they serve, have one source and several keys. */
fa2_status fa2i_compile_key(const fa2i_variant *variant, const char *source,
                            const fa2i_target *target, fa2i_key *ret_key);

/* The same for an NVRTC of this version (1000 * major + 10 * minor), which need not be here. */
void fa2i_compile_key_of(const fa2i_variant *variant, const char *source, const fa2i_target *target,
                         int version, fa2i_key *ret_key);

/* Whether this NVRTC can make code for the SM alone that a variant's recipe asks for. FA2_E_UNSUPPORTED says
 * what it takes; FA2_E_NO_NVRTC. */
fa2_status fa2i_compile_check(const fa2i_variant *variant, const fa2i_target *target);

/* Compile. A program that the compiler rejects, or breaks on, is FA2_OK with outcome
 * FA2I_OUTCOME_COMPILE_ERROR and the compiler's log: failures are results. One that spills is
 * FA2I_OUTCOME_SPILLED, with its image. *ret_kernel belongs to the caller (fa2i_kernel_done).
 * generator: fa2i_generator_id. */
fa2_status fa2i_compile(const fa2i_variant *variant, const char *source, const fa2i_target *target,
                        const char *generator, fa2i_kernel *ret_kernel);

#endif
