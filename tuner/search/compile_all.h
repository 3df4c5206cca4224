/*
 * Compile many variants on several threads, equal code once. Results arrive in the calling thread,
 * one by one, as they are finished; so the caller may write to the database and to the screen
 * without locks.
 *
 * Processes that share a database share the work: each claims what it compiles (cache/claims.h).
 * What another one is compiling is put off, and taken from the database when that one has stored
 * it; if it ended without, or takes longer than two minutes, it is compiled here.
 */
#ifndef FA2I_COMPILE_ALL_H
#define FA2I_COMPILE_ALL_H

#include <signal.h>
#include "cache/cache.h"
#include "runtime/cuda/compile.h"

/* Jobs with the same source, target and suffix have the same code: those of variants that differ
 * only in how they are launched. Each gets its kernel. */
typedef struct fa2i_compile_job {
    fa2i_variant variant;
    char *source; /* owned by the caller */
    fa2i_target target;
} fa2i_compile_job;

/* index: of the job. kernel is borrowed for the length of the call. found: another process
 * compiled it meanwhile, and it is in the database. A status other than FA2_OK stops the rest and
 * is returned by fa2i_compile_all. */
typedef fa2_status (*fa2i_compiled_fn)(void *user, size_t index, const fa2i_kernel *kernel,
                                       bool found);

/* cache: into which the callback stores what it is given; NULL: nothing is shared. threads <= 0:
 * the number of processors. stop (may be NULL): when it becomes nonzero, no new job is started,
 * and FA2_OK is returned with the rest undone. Fails with FA2_E_NO_NVRTC, FA2_E_MEMORY ...; a
 * variant that does not compile is a result (fa2i_kernel.outcome). */
fa2_status fa2i_compile_all(const fa2i_compile_job *jobs, size_t count, fa2i_cache *cache,
                            int threads, const char *generator, const volatile sig_atomic_t *stop,
                            fa2i_compiled_fn compiled, void *user);

/* Write a compiled kernel where FA2_DUMP says (runtime/cuda/dump.h). The first failure of this process is a line on
 * stderr. */
void fa2i_dump_or_say(const fa2i_kernel *kernel, const char *source);

/* How many threads work on so many jobs. */
size_t fa2i_compile_threads(int wanted, size_t jobs);

/* Seconds that a thread takes for a kernel's code, about: see fa2i_tune_estimate. */
double fa2i_compile_about_s(fa2_op op);

#endif
