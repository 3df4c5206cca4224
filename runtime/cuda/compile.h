/*
 * Compiles CUDA text to an artifact, by NVRTC. Needs no GPU. Thread-safe: NVRTC runs in the calling thread, and several
 * threads may compile at once. The locale is C while NVRTC runs.
 */
#pragma once

#include "runtime/base/record.h"

/* The target of compilation: "sm_86" gives a cubin, "compute_86" gives PTX that the driver compiles. The recipe's
 * suffix is appended when a kernel is compiled. */
typedef struct fa2i_target {
    char name[16];
    bool ptx;
    int nvrtc; /* version of the compiler that will make or made the code (1000 * major + 10 * minor); 0: none */
} fa2i_target;

/* Finds the target for an SM. That is a cubin, or PTX if as_ptx or if NVRTC does not know the SM. In the latter case
 * the PTX is for the newest older SM that NVRTC knows. FA2_E_NO_NVRTC; FA2_E_UNSUPPORTED if it knows no such SM. */
fa2_status fa2i_target_for(int arch, bool as_ptx, fa2i_target *ret_target);

/* Makes the target of existing code from its record: name is "sm_90" or "compute_90", made by this NVRTC. */
void fa2i_target_of(const char *name, int nvrtc, fa2i_target *ret_target);

/* Returns whether the target of this name is PTX. */
bool fa2i_target_is_ptx(const char *name);

/* Computes the artifact key: a hash of source, compiler options, target, NVRTC version, class and recipe. Variants that
 * differ only in how they are launched, or in the class that they serve, have one source and several keys. */
fa2_status fa2i_compile_key(const fa2i_variant *variant, const char *source, const fa2i_target *target,
                            fa2i_key *ret_key);

/* The same for an NVRTC of this version (1000 * major + 10 * minor), which need not be installed. */
void fa2i_compile_key_of(const fa2i_variant *variant, const char *source, const fa2i_target *target, int version,
                         fa2i_key *ret_key);

/* Checks that this NVRTC can compile for the SM-specific target (such as sm_90a) that a variant's recipe asks for.
 * FA2_E_UNSUPPORTED names the version that is needed. FA2_E_NO_NVRTC. */
fa2_status fa2i_compile_check(const fa2i_variant *variant, const fa2i_target *target);

/* Compiles. The caller owns *ret_kernel (fa2i_kernel_done). generator: fa2i_generator_id. Some failures are results,
 * with status FA2_OK. If the compiler rejects the program or crashes on it, the outcome is FA2I_OUTCOME_COMPILE_ERROR,
 * and the kernel has the compiler's log. If the program spills, the outcome is FA2I_OUTCOME_SPILLED, and the kernel has
 * its image. */
fa2_status fa2i_compile(const fa2i_variant *variant, const char *source, const fa2i_target *target,
                        const char *generator, fa2i_kernel *ret_kernel);
