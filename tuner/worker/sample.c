/*
 * Sampling: a batch of requests at once, answered one by one. When the process goes, another one takes
 * what is left, without the contender that it went with.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "tuner/worker/worker_internal.h"

#define SAMPLE_S 2.0

typedef struct batch {
    fa2i_worker *worker;
    fa2i_sample *samples;
    size_t count;
    const uint32_t *ids;
    int launches;
    double first_s;    /* patience with a sample at first */
    double patience_s; /* and at present */
    uint32_t *pending; /* indexes of samples not taken yet */
    uint32_t *queue;   /* their kernel ids */
    size_t pending_count;
    fa2i_failure *failures;
} batch;

/* A contender failed: its samples that are still to be taken will not be. Unless the user stops,
 * which may be why it failed; or the process was lost, or the device late, for the first time; or the fault is
 * not the kernel's, which is a status. */
static fa2_status fail_contender(batch *b, uint32_t contender, const fa2i_failure *now)
{
    fa2i_failure *failure = &b->failures[contender];
    if (fa2i_worker_stop_wanted(b->worker))
        return FA2_OK;
    if ((now->blame == FA2I_BLAME_LOST && failure->blame == FA2I_BLAME_KERNEL) ||
        (now->blame == FA2I_BLAME_LATE && failure->blame != FA2I_BLAME_LATE)) {
        failure->blame = now->blame; /* outcome stays OK */
        if (now->blame == FA2I_BLAME_LATE)
            b->patience_s = FA2I_LATE_AGAIN * b->first_s;
        return FA2_OK;
    }
    fa2_status st = fa2i_failure_status(now);
    if (st != FA2_OK)
        return st;
    fa2i_failure_set(failure, now->outcome,
                     now->blame == FA2I_BLAME_SLOW ? FA2I_BLAME_SLOW : FA2I_BLAME_KERNEL, now->detail);
    for (size_t i = 0; i < b->count; i++) {
        if (b->samples[i].contender == contender && !b->samples[i].taken) {
            b->samples[i].taken = true;
            b->samples[i].outcome = now->outcome;
        }
    }
    return FA2_OK;
}

static void collect_pending(batch *b)
{
    b->pending_count = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (b->samples[i].taken)
            continue;
        b->queue[b->pending_count] = b->ids[b->samples[i].contender];
        b->pending[b->pending_count++] = (uint32_t)i;
    }
}

/* Load what the pending samples need. Ends with a process that holds all of it, with failures, or
 * when the user stops. What is refused before the driver has taken any image is loaded again when it has: then it is
 * the image's fault. */
static fa2_status load_pending(batch *b)
{
    bool again = true;
    while (again && !fa2i_worker_stop_wanted(b->worker)) {
        fa2i_failure refused = {0};
        again = false;
        for (size_t i = 0; i < b->count; i++) {
            uint32_t contender = b->samples[i].contender;
            fa2i_failure now = {0};
            if (b->samples[i].taken)
                continue;
            fa2_status st = fa2i_worker_ensure_loaded(b->worker, b->ids[contender], &now);
            if (now.blame == FA2I_BLAME_IMAGE)
                refused = now;
            else if (st == FA2_OK && now.outcome != FA2I_OUTCOME_OK)
                st = fail_contender(b, contender, &now);
            if (st != FA2_OK)
                return st;
            again = again || b->worker->process.pid == 0; /* what was loaded before is gone, too */
        }
        if (refused.blame == FA2I_BLAME_IMAGE && !b->worker->takes_images)
            return fa2i_worker_misfit(refused.detail);
        again = again || refused.blame == FA2I_BLAME_IMAGE;
    }
    return FA2_OK;
}

/* Read the answer for one sample. Those of a contender that has failed since come all the same. */
static fa2_status read_sample(batch *b, fa2i_sample *sample)
{
    fa2i_message answer;
    fa2i_failure now = {0};
    bool good = fa2i_worker_next_answer(b->worker, b->patience_s, &answer, NULL, 0, &now);
    if (sample->taken)
        return FA2_OK;
    if (!good)
        return fail_contender(b, sample->contender, &now);
    sample->taken = true;
    sample->outcome = FA2I_OUTCOME_OK;
    sample->us = answer.us;
    return FA2_OK;
}

/* Send the pending samples and read their answers until all are there, one kills the worker, or the
 * user stops. */
static fa2_status run_pending(batch *b)
{
    fa2i_worker *worker = b->worker;
    fa2i_message request = {.request = FA2I_REQUEST_SAMPLE,
                            .id = worker->warmth,
                            .count = (uint32_t)b->pending_count,
                            .launches = (uint32_t)b->launches,
                            .bytes = b->pending_count * sizeof *b->queue,
                            .patience_s = b->patience_s};
    fa2i_pipe_send(worker->process.to, &request, b->queue);
    for (size_t i = 0; i < b->pending_count && worker->process.pid != 0; i++) {
        fa2_status st = read_sample(b, &b->samples[b->pending[i]]);
        bool last = i + 1 == b->pending_count;
        if (!last && worker->process.pid != 0 && (st != FA2_OK || fa2i_worker_stop_wanted(worker)))
            fa2i_worker_end(worker, NULL, 0); /* it would go on with the rest of the batch */
        if (st != FA2_OK)
            return st;
    }
    return FA2_OK;
}

fa2_status fa2i_worker_sample(fa2i_worker *worker, fa2i_sample *samples, size_t count,
                              const uint32_t *ids, int launches, double best_us,
                              fa2i_failure *failures)
{
    fa2_status st = FA2_OK;
    batch b = {.worker = worker,
               .samples = samples,
               .count = count,
               .ids = ids,
               .launches = launches,
               .failures = failures};

    b.pending = fa2i_alloc_array(count, sizeof *b.pending);
    b.queue = fa2i_alloc_array(count, sizeof *b.queue);
    if (b.pending == NULL || b.queue == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for %zu samples", count));
    b.first_s = b.patience_s = fa2i_worker_patience_s(worker, SAMPLE_S, launches, best_us);
    while (!fa2i_worker_stop_wanted(worker)) {
        FA2_TRY(load_pending(&b));
        collect_pending(&b);
        if (b.pending_count == 0 || fa2i_worker_stop_wanted(worker))
            break;
        FA2_TRY(run_pending(&b));
    }
done:
    fa2i_free(b.pending);
    fa2i_free(b.queue);
    return st;
}
