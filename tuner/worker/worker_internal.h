/*
 * Shared by worker.c (requests) and sample.c (sampling). The contracts of worker.h hold.
 */
#pragma once

#include "tuner/worker/blame.h"
#include "tuner/worker/process.h"

struct fa2i_worker {
    int ordinal;
    bool modelled;
    fa2i_kernel_fn kernel;
    void *user;
    const volatile sig_atomic_t *stop;
    fa2i_process process;
    fa2i_case current;
    bool has_case, case_sent;
    bool *loaded; /* by id */
    size_t loaded_count;
    fa2i_warmth warmth; /* of samples */
    bool takes_images;  /* the driver accepted one, in this process or an earlier one */
    double expected_us; /* by the model, for the present case; 0: not known */
    double silent_s;    /* the longest silence during a check; shorter in tests */
};

bool fa2i_worker_stop_wanted(const fa2i_worker *worker);

/* Ends the process, if there is one, and forgets its state. how (may be NULL): how it ended. */
void fa2i_worker_end(fa2i_worker *worker, char *how, size_t how_bytes);

/* Ensures a process that has the case and this kernel. failure: the kernel's. */
fa2_status fa2i_worker_ensure_loaded(fa2i_worker *worker, uint32_t id, fa2i_failure *failure);

/* Reads the next answer to a request with this patience. Returns false on a failure. Then the process is gone, unless
 * the failure is LAUNCH_ERROR. out gets the payload of a good answer, which must be `bytes` long. */
bool fa2i_worker_next_answer(fa2i_worker *worker, double patience_s, fa2i_message *answer, void *out, size_t bytes,
                             fa2i_failure *failure);

#define FA2I_LATE_AGAIN 2 /* a late kernel gets this many times the patience at the second try */

/* Returns the time that the device gets for these launches of the present case. best_us: the best time known; 0:
 * none. */
double fa2i_worker_patience_s(const fa2i_worker *worker, double least_s, int launches, double best_us);
