/*
 * Building for one SM without a GPU: compile the cost model's first choices for each kind of
 * problem, then rank them for each problem with the register counts that the compiler reported, and
 * store the best one as a modelled winner on the card that stands for the SM. Where every variant of a
 * kind spills, the one that spills least wins, as it does for a call that finds none tuned.
 *
 * Errors. A variant that does not compile or spills is a result; FA2_E_NO_NVRTC, FA2_E_DATABASE,
 * FA2_E_GENERATOR, FA2_E_MEMORY end the build. Every kernel is stored as soon as it is compiled.
 * Threads. Called from the main thread, which also writes progress and notes to stderr.
 */
#ifndef FA2I_BUILD_H
#define FA2I_BUILD_H

#include <signal.h>
#include "cache/cache.h"
#include "runtime/lua/generator.h"
#include "tuner/input/shapes.h"

typedef struct fa2i_build {
    fa2i_cache *cache; /* borrowed, as are the others */
    fa2i_generator *generator;
    const fa2i_shapes *shapes;
    int jobs; /* threads; 0: processors */
    const volatile sig_atomic_t *stop;
} fa2i_build;

typedef struct fa2i_built {
    fa2_problem problem;
    char variant[FA2I_VARIANT_CHARS];
    int registers;   /* per thread; 0 for PTX */
    int spill_bytes; /* per thread; not 0 only where every variant of its kind spills; 0, too, of one that is
                      * slow by more than spills (fa2i_kernel_spills) */
    double model_us;
} fa2i_built;

typedef struct fa2i_build_result {
    fa2i_card card;
    char target[16];     /* "sm_86", or "compute_86" where NVRTC makes no cubin */
    fa2i_built *winners; /* in the order of the shapes */
    size_t winner_count;
    size_t unserved; /* problems that no family serves on this SM; a note said why */
    size_t without;  /* problems of which no variant compiles */
    size_t compiled, reused, spilled, failed; /* variants; the last two are among the first two */
    double seconds;
} fa2i_build_result;

/* On FA2_OK *ret_result belongs to the caller (fa2i_build_result_done). When *stop became nonzero
 * the kernels compiled so far are stored, and winners only if all were done. */
fa2_status fa2i_build_arch(const fa2i_build *build, const fa2i_card *card,
                           fa2i_build_result *ret_result);

/* What that would begin with, and writes nothing: in *ret_result compiled says how many variants are to be compiled,
 * reused how many are not, seconds about how long that takes with *ret_threads; there are no winners. More is
 * compiled only where all of a kind spill. FA2_E_NO_NVRTC only where something is to be compiled. */
fa2_status fa2i_build_foresee(const fa2i_build *build, const fa2i_card *card,
                              fa2i_build_result *ret_result, size_t *ret_threads);

void fa2i_build_result_done(fa2i_build_result *result);

#endif
