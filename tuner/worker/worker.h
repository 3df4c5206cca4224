/*
 * The parent's side of the worker process: the only process that runs kernels. A kernel that faults
 * or hangs takes the worker with it and nothing else: the worker is killed and waited for, the
 * kernel that it was running gets an outcome, and the next request starts another worker with the
 * same case.
 *
 * Failures of a kernel are results (fa2i_failure), not statuses. A status other than FA2_OK means
 * that the work cannot be done and no kernel is to blame for it: the worker does not start, memory
 * of the host or the device is short, the driver is too old for this NVRTC's code. FA2_E_CUDA,
 * FA2_E_IO, FA2_E_MEMORY, with a message. The worker may be asked again.
 * A worker that dies without a word may have been killed by somebody else (the system when memory
 * is short, a signal to the process group), so its kernel is tried once more in another one.
 *
 * Deadlines count the time that the device had, not the host's (watch.h). A deadline is the longest of
 * - 5 s for a check, 2 s for a sample;
 * - 50 times the best time known;
 * - 50 times the time that the model expects;
 * - the time of the problem at 1 TFLOPS.
 * A kernel that is late is tried a second time, in another process and with twice the time; then it hangs.
 * A software device has no deadline. It ends a launch itself after a number of instructions (FA2_SIM_BUDGET), by
 * CUDA_ERROR_LAUNCH_TIMEOUT, which is a hang, too.
 * A worker on a GPU that says nothing for 10 minutes, or 120 times its deadline, is ended. That is no verdict
 * (FA2I_BLAME_SLOW). fa2i_worker_create ignores SIGPIPE in this process: a worker may die at any time. Not
 * thread-safe.
 */
#ifndef FA2I_WORKER_H
#define FA2I_WORKER_H

#include <signal.h>
#include "tuner/judge/case.h"
#include "tuner/search/search.h"
#include "tuner/worker/protocol.h"

typedef struct fa2i_worker fa2i_worker;

/* Whose fault a failure is. Values after FA2I_BLAME_SLOW are never seen outside of tuner/worker, unless beside
 * FA2I_OUTCOME_OK, where they mean nothing. */
typedef enum fa2i_blame {
    FA2I_BLAME_KERNEL = 0,
    FA2I_BLAME_STOP,  /* stop was set meanwhile: nothing is known of the kernel */
    FA2I_BLAME_IMAGE, /* the driver does not take this image, and took no other so far: it is the
                       * kernel's fault only if the driver takes any */
    FA2I_BLAME_SLOW,  /* no answer came, and it is not sure that the device had its time: nothing is known
                       * of the kernel or stored, and a later run tries it again */
    FA2I_BLAME_ENVIRONMENT,
    FA2I_BLAME_MISFIT, /* driver and NVRTC */
    FA2I_BLAME_LOST,   /* the process died without a word */
    FA2I_BLAME_LATE    /* the device did not finish in the time that it had */
} fa2i_blame;

/* What became of a kernel: OK, LAUNCH_ERROR, FAULT or HANG. */
typedef struct fa2i_failure {
    fa2i_outcome outcome;
    fa2i_blame blame; /* of what is not OK */
    char detail[FA2I_DETAIL_BYTES];
} fa2i_failure;

/* The kernel of an id, with its image; borrowed until the worker is destroyed. */
typedef const fa2i_kernel *(*fa2i_kernel_fn)(void *user, uint32_t id);

/* Start a worker on device `ordinal`, whose times are modelled if it is software. It is this
 * program again, called as `worker`. stop (may be NULL): once nonzero, sampling ends after the
 * present sample. On FA2_OK *ret_worker belongs to the caller. */
fa2_status fa2i_worker_create(int ordinal, bool modelled, fa2i_kernel_fn kernel, void *user,
                              const volatile sig_atomic_t *stop, fa2i_worker **ret_worker);
void fa2i_worker_destroy(fa2i_worker *worker); /* NULL is fine; kills a worker that is busy */

/* Make the tensors of a case, in place of those of the last one. Not enough device memory is
 * FA2_E_CUDA, saying how much is needed and free; the worker is still good for other cases. */
fa2_status fa2i_worker_case(fa2i_worker *worker, const fa2i_case *c);

/* Tell the model's time for the present case, in us; 0: not known, as after fa2i_worker_case. */
void fa2i_worker_expect(fa2i_worker *worker, double us);

/* Launch kernel id once on poisoned outputs, and fetch them: these rows, packed, or all (count ==
 * 0). bytes: what that must be, and out has. *ret_overwritten: words of the guards that changed. out
 * is untouched unless failure->outcome is OK. A failure is the kernel's, unless failure->blame is
 * FA2I_BLAME_STOP, FA2I_BLAME_IMAGE or FA2I_BLAME_SLOW. */
fa2_status fa2i_worker_check(fa2i_worker *worker, uint32_t id, const fa2i_place *places,
                             size_t count, void *out, size_t bytes, uint32_t *ret_overwritten,
                             fa2i_failure *failure);

/* Take samples, in order (see fa2i_search.sample). ids: kernel of each contender. failures: per
 * contender, zero before the first call, set for those that fail; that is the kernel's fault, unless its
 * blame is FA2I_BLAME_SLOW. */
fa2_status fa2i_worker_sample(fa2i_worker *worker, fa2i_sample *samples, size_t count,
                              const uint32_t *ids, int launches, double best_us,
                              fa2i_failure *failures);

/* How samples are taken from now on (protocol.h); at first cold. */
void fa2i_worker_set_warmth(fa2i_worker *worker, fa2i_warmth warmth);

/* Launch a kernel that measures the card (protocol.h): us of one launch, and its blocks. A failure is the
 * kernel's, as of fa2i_worker_check. */
fa2_status fa2i_worker_probe(fa2i_worker *worker, uint32_t id, const fa2i_probe *probe,
                             double *ret_us, uint32_t *ret_blocks, fa2i_failure *failure);

/* Set the message that driver and NVRTC do not fit, as detail shows, and return FA2_E_CUDA. */
fa2_status fa2i_worker_misfit(const char *detail);

#endif
