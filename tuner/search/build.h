/*
 * Building for one SM without a GPU: compiles the cost model's first choices for each class of problems. Then it ranks
 * them for each problem, with the register counts that the compiler reported. It stores the best one as a modelled
 * winner on the card that stands for the SM. If every variant of a class spills, the one that spills least wins, as for
 * a call that finds no tuned kernel.
 *
 * Errors. A variant that does not compile or spills is a result. FA2_E_NO_NVRTC, FA2_E_DATABASE, FA2_E_GENERATOR and
 * FA2_E_MEMORY end the build. Every kernel is stored as soon as it is compiled. Threads. Call it from the main thread.
 * It writes progress and notes to stderr.
 */
#pragma once

#include <signal.h>
#include "cache/cache.h"
#include "runtime/lua/generator.h"
#include "tuner/input/shapes.h"

typedef struct fa2i_build {
    fa2i_cache *cache; /* all pointers are borrowed */
    fa2i_generator *generator;
    const fa2i_shapes *shapes;
    int jobs; /* threads; 0: the number of processors */
    const volatile sig_atomic_t *stop;
} fa2i_build;

typedef struct fa2i_built {
    fa2_problem problem;
    char variant[FA2I_VARIANT_CHARS];
    int registers;   /* per thread; 0 for PTX */
    int spill_bytes; /* per thread. Not 0 only if every variant of its class spills. Also 0 for a variant that is slow
                      * for another reason (fa2i_kernel_spills) */
    double model_us;
} fa2i_built;

typedef struct fa2i_build_result {
    fa2i_card card;
    char target[16];     /* "sm_86", or "compute_86" if NVRTC makes no cubin */
    fa2i_built *winners; /* in the order of the shapes */
    size_t winner_count;
    size_t unserved;                          /* problems that no family serves on this SM; a note said why */
    size_t without;                           /* problems for which no variant compiles */
    size_t compiled, reused, spilled, failed; /* variants; spilled and failed also count in compiled or reused */
    double seconds;
} fa2i_build_result;

/* Builds. On FA2_OK the caller owns *ret_result (fa2i_build_result_done). If *stop becomes nonzero, the kernels that
 * were compiled so far are stored. Winners are stored only if all kernels were compiled. */
fa2_status fa2i_build_arch(const fa2i_build *build, const fa2i_card *card, fa2i_build_result *ret_result);

/* Predicts the first round of a build, and writes nothing. In *ret_result, compiled is the number of variants to
 * compile, and reused the number of variants that need no compiling. seconds is the approximate time with *ret_threads.
 * There are no winners. The build compiles more only if all variants of a class spill. Returns FA2_E_NO_NVRTC only if
 * something must be compiled. */
fa2_status fa2i_build_predict(const fa2i_build *build, const fa2i_card *card, fa2i_build_result *ret_result,
                              size_t *ret_threads);

void fa2i_build_result_done(fa2i_build_result *result);
