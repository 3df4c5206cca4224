/*
 * Compiles many variants on several threads, and equal code only once. Results arrive one by one in the calling thread,
 * when they are finished. So the caller may write to the database and to the screen without locks.
 *
 * Processes that share a database share the work: each claims what it compiles (cache/content/claims.h). If another
 * process is compiling a job, the job is put off, and later read from the database. If that process ends without
 * storing it, or takes longer than two minutes, the job is compiled here.
 */
#pragma once

#include <signal.h>
#include "cache/cache.h"
#include "runtime/cuda/compile.h"

/* Jobs with the same source, target and suffix have the same code: their variants differ only in how they are launched.
 * Each job gets its own kernel. */
typedef struct fa2i_compile_job {
    fa2i_variant variant;
    char *source; /* owned by the caller */
    fa2i_target target;
} fa2i_compile_job;

/* index: of the job. kernel: borrowed during the call. found: another process compiled it meanwhile, and it is in the
 * database. A status other than FA2_OK stops the rest, and fa2i_compile_all returns it. */
typedef fa2_status (*fa2i_compiled_fn)(void *user, size_t index, const fa2i_kernel *kernel, bool found);

/* cache: the database into which the callback stores the kernels; NULL: nothing is shared. threads <= 0: the number of
 * processors. stop (may be NULL): when it becomes nonzero, no new job starts, and FA2_OK is returned with the rest
 * undone. Fails with FA2_E_NO_NVRTC, FA2_E_MEMORY ... A variant that does not compile is a result
 * (fa2i_kernel.outcome). */
fa2_status fa2i_compile_all(const fa2i_compile_job *jobs, size_t count, fa2i_cache *cache, int threads,
                            const char *generator, const volatile sig_atomic_t *stop, fa2i_compiled_fn compiled,
                            void *user);

/* Writes a compiled kernel into the folder FA2_DUMP (runtime/cuda/dump.h). The first failure of this process prints a
 * line on stderr. */
void fa2i_dump_or_say(const fa2i_kernel *kernel, const char *source);

/* Returns how many threads work on that many jobs. */
size_t fa2i_compile_threads(int wanted, size_t jobs);

/* Returns about how many seconds a thread needs to compile a kernel; see fa2i_tune_estimate. */
double fa2i_compile_about_s(fa2_op op);
