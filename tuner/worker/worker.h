/*
 * The parent's side of the worker process, which is the only process that runs kernels. A kernel that faults or hangs
 * takes only the worker with it. The worker is killed, the kernel that it ran gets an outcome, and the next request
 * starts another worker with the same case.
 *
 * Failures of a kernel are results (fa2i_failure), not statuses. A status other than FA2_OK means that the work cannot
 * be done and that no kernel is to blame. Examples: the worker does not start, memory of the host or the device is
 * short, or the driver is too old for this NVRTC's code. The statuses are FA2_E_CUDA, FA2_E_IO and FA2_E_MEMORY, with a
 * message. The worker may be asked again. If a worker dies without an answer, something else may have killed it (the
 * system when memory is short, a signal to the process group). So its kernel is tried once more in another worker.
 *
 * Deadlines count the time that the device had, not the host's time (watch.h). A deadline is the longest of
 * - 5 s for a check, 2 s for a sample;
 * - 50 times the best time known;
 * - 50 times the time that the model expects;
 * - the time of the problem at 1 TFLOPS.
 * A late kernel is tried a second time, in another process and with twice the time. If it is late again, it counts as a
 * hang. A software device has no deadline. It ends a launch itself after a number of instructions (FA2_SIM_BUDGET) with
 * CUDA_ERROR_LAUNCH_TIMEOUT, which also counts as a hang. A worker on a GPU that sends nothing for 10 minutes, or for
 * 120 times its deadline, is ended. That gives no verdict (FA2I_BLAME_SLOW).
 *
 * fa2i_worker_create ignores SIGPIPE in this process, because a worker may die at any time. Not thread-safe.
 */
#pragma once

#include <signal.h>
#include "tuner/judge/case.h"
#include "tuner/worker/protocol.h"

typedef struct fa2i_worker fa2i_worker;

/* The cause of a failure. Values after FA2I_BLAME_SLOW never leave tuner/worker, except beside FA2I_OUTCOME_OK, where
 * they mean nothing. */
typedef enum fa2i_blame {
    FA2I_BLAME_KERNEL = 0,
    FA2I_BLAME_STOP,  /* the user stopped meanwhile: nothing is known of the kernel */
    FA2I_BLAME_IMAGE, /* the driver refused this image, and has accepted no other so far. The kernel is to blame only if
                       * the driver accepts another one */
    FA2I_BLAME_SLOW,  /* no answer came, and the device may not have had its time. Nothing is known of the kernel or
                       * stored, and a later run tries it again */
    FA2I_BLAME_ENVIRONMENT,
    FA2I_BLAME_MISFIT, /* driver and NVRTC do not fit */
    FA2I_BLAME_LOST,   /* the process died without an answer */
    FA2I_BLAME_LATE    /* the device did not finish in the time that it had */
} fa2i_blame;

/* The result of running a kernel: OK, LAUNCH_ERROR, FAULT or HANG. */
typedef struct fa2i_failure {
    fa2i_outcome outcome;
    fa2i_blame blame; /* valid if outcome is not OK */
    char detail[FA2I_DETAIL_BYTES];
} fa2i_failure;

/* Returns the kernel of an id, with its image. It is borrowed until the worker is destroyed. */
typedef const fa2i_kernel *(*fa2i_kernel_fn)(void *user, uint32_t id);

/* Starts a worker on device `ordinal`. modelled: the device is software. stop (may be NULL): once it is nonzero,
 * sampling ends after the present sample. On FA2_OK the caller owns *ret_worker. */
fa2_status fa2i_worker_create(int ordinal, bool modelled, fa2i_kernel_fn kernel, void *user,
                              const volatile sig_atomic_t *stop, fa2i_worker **ret_worker);
void fa2i_worker_destroy(fa2i_worker *worker); /* accepts NULL; kills a busy worker */

/* Makes the tensors of a case, in place of the last case's. If device memory is short, returns FA2_E_CUDA, and the
 * message says how much is needed and free. The worker can still take other cases. */
fa2_status fa2i_worker_case(fa2i_worker *worker, const fa2i_case *c);

/* Sets the model's time for the present case, in us. 0: not known, as after fa2i_worker_case. */
void fa2i_worker_expect(fa2i_worker *worker, double us);

/* Launches kernel `id` once on poisoned outputs, and fetches the rows at these places, packed, or all outputs (count ==
 * 0). bytes: the size of the result and of out. *ret_overwritten: words of the guards that changed. out is untouched
 * unless failure->outcome is OK. The kernel caused a failure, unless failure->blame is FA2I_BLAME_STOP,
 * FA2I_BLAME_IMAGE or FA2I_BLAME_SLOW. */
fa2_status fa2i_worker_check(fa2i_worker *worker, uint32_t id, const fa2i_place *places, size_t count, void *out,
                             size_t bytes, uint32_t *ret_overwritten, fa2i_failure *failure);

/* Takes samples in order (see fa2i_search.sample). ids: the kernel of each contender. failures: per contender, zero
 * before the first call, set for contenders that fail. The kernel caused it, unless its blame is FA2I_BLAME_SLOW. */
fa2_status fa2i_worker_sample(fa2i_worker *worker, fa2i_sample *samples, size_t count, const uint32_t *ids,
                              int launches, double best_us, fa2i_failure *failures);

/* Sets how samples are taken from now on (protocol.h). The default is cold. */
void fa2i_worker_set_warmth(fa2i_worker *worker, fa2i_warmth warmth);

/* Launches a kernel that measures the card (protocol.h), and returns the us of one launch and its number of blocks.
 * failure: as in fa2i_worker_check. */
fa2_status fa2i_worker_probe(fa2i_worker *worker, uint32_t id, const fa2i_probe *probe, double *ret_us,
                             uint32_t *ret_blocks, fa2i_failure *failure);

/* Sets a message that driver and NVRTC do not fit, with this detail. Returns FA2_E_CUDA. */
fa2_status fa2i_worker_misfit(const char *detail);
