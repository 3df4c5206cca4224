/*
 * Sampling: a batch of requests is sent at once, and answered one by one. If the process ends, another one takes the
 * remaining samples, without the contender that was running.
 */
#include "runtime/base/alloc.h"
#include "tuner/worker/worker_internal.h"

#define SAMPLE_S 2.0

typedef struct batch {
    fa2i_worker *worker;
    fa2i_sample *samples;
    size_t count;
    const uint32_t *ids;
    int launches;
    double first_s;    /* patience with a sample at the start */
    double patience_s; /* patience now */
    uint32_t *pending; /* indexes of samples not taken yet */
    uint32_t *queue;   /* the kernel id of each pending sample */
    size_t pending_count;
    fa2i_failure *failures;
} batch;

/* Handles a contender that failed: its remaining samples are not taken. There are three exceptions:
 * - The user stopped, which may be the cause.
 * - The process was lost, or the device was late, for the first time.
 * - The kernel is not to blame; then the failure is a status. */
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
    fa2i_failure_set(failure, now->outcome, now->blame == FA2I_BLAME_SLOW ? FA2I_BLAME_SLOW : FA2I_BLAME_KERNEL,
                     now->detail);
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

/* Loads the kernels of the pending samples. At the end one process holds all of them, or they failed, or the user
 * stopped. An image that is refused before the driver has accepted any is loaded again after it has accepted one. If it
 * is refused again, the image is to blame. */
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
            again = again || b->worker->process.pid == 0; /* the kernels that were loaded before are gone, too */
        }
        if (refused.blame == FA2I_BLAME_IMAGE && !b->worker->takes_images)
            return fa2i_worker_misfit(refused.detail);
        again = again || refused.blame == FA2I_BLAME_IMAGE;
    }
    return FA2_OK;
}

/* Reads the answer for one sample. Answers for a contender that has failed meanwhile are read and dropped. */
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

/* Sends the pending samples and reads their answers. Ends when all are there, one kills the worker, or the user
 * stops. */
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
            fa2i_worker_end(worker, NULL, 0); /* the worker would go on with the rest of the batch */
        if (st != FA2_OK)
            return st;
    }
    return FA2_OK;
}

fa2_status fa2i_worker_sample(fa2i_worker *worker, fa2i_sample *samples, size_t count, const uint32_t *ids,
                              int launches, double best_us, fa2i_failure *failures)
{
    fa2_status st = FA2_OK;
    batch b = {
        .worker = worker, .samples = samples, .count = count, .ids = ids, .launches = launches, .failures = failures};

    FA2_TRY(FA2I_NEW(b.pending, count));
    FA2_TRY(FA2I_NEW(b.queue, count));
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
