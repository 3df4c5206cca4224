/*
 * Requests to the worker process, and its replacement.
 *
 * Invariants:
 * - Without a process, case_sent is false and nothing is loaded.
 * - Between calls the process is idle: every answer was read, or the process was killed. So a write cannot block, and
 *   if an answer does not come, the last request is the culprit.
 * - A kernel is loaded when it is first used, also after a restart.
 */
#include <cuda.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/ops/op.h"
#include "runtime/base/clock.h"
#include "tuner/worker/worker_internal.h"

#define CHECK_S    5.0
#define PROBE_S    60.0 /* a GPU takes milliseconds */
#define SILENT_S   600.0
#define SLOW_FLOPS 1e12 /* a kernel that is slower than this is not worth waiting for */
#define SLOW_TIMES 50   /* nor one that takes this many times the best time, or the model's */

bool fa2i_worker_stop_wanted(const fa2i_worker *worker)
{
    return worker->stop != NULL && *worker->stop != 0;
}

void fa2i_worker_end(fa2i_worker *worker, char *how, size_t how_bytes)
{
    fa2i_process_kill(&worker->process, how, how_bytes);
    worker->case_sent = false;
    if (worker->loaded_count > 0)
        memset(worker->loaded, 0, worker->loaded_count * sizeof *worker->loaded);
}

/* Reports a worker that ends because the device is broken or late. If the device itself ends a launch, that counts as
 * late, too. But a software device counts instructions, so then the kernel is to blame at once. */
static void fail_broken(const fa2i_worker *worker, const fa2i_message *answer, const char *text, fa2i_failure *failure)
{
    const bool ended = answer->result == CUDA_ERROR_LAUNCH_TIMEOUT;
    if (answer->state == FA2I_ANSWER_LATE || (ended && !worker->modelled))
        fa2i_failure_set(failure, FA2I_OUTCOME_HANG, FA2I_BLAME_LATE, text);
    else
        fa2i_failure_set(failure, ended ? FA2I_OUTCOME_HANG : FA2I_OUTCOME_FAULT,
                         fa2i_blame_for(worker->takes_images, answer), text);
}

/* Reads the sentence of an answer that is not OK. */
static fa2i_pipe read_detail(fa2i_worker *worker, const fa2i_message *answer, double deadline_s, fa2i_failure *failure)
{
    char text[FA2I_MESSAGE_BYTES] = "";
    if (answer->bytes >= sizeof text)
        return FA2I_PIPE_CLOSED;
    fa2i_pipe state = fa2i_pipe_read(worker->process.from, text, (size_t)answer->bytes, deadline_s);
    if (state == FA2I_PIPE_OK && answer->state == FA2I_ANSWER_FAILED)
        fa2i_failure_set(failure, FA2I_OUTCOME_LAUNCH_ERROR, fa2i_blame_for(worker->takes_images, answer), text);
    else if (state == FA2I_PIPE_OK)
        fail_broken(worker, answer, text, failure);
    return state;
}

/* Ends a process that did not answer as it should, and sets the failure. */
static void give_up(fa2i_worker *worker, fa2i_pipe state, double seconds, fa2i_failure *failure)
{
    char how[80];
    fa2i_worker_end(worker, how, sizeof how);
    if (state == FA2I_PIPE_LATE)
        snprintf(how, sizeof how, "the worker process has not answered for %.0f s", seconds);
    if (state == FA2I_PIPE_LATE)
        fa2i_failure_set(failure, FA2I_OUTCOME_HANG, FA2I_BLAME_SLOW, how);
    else
        fa2i_failure_set(failure, FA2I_OUTCOME_FAULT, FA2I_BLAME_LOST, how);
}

bool fa2i_worker_next_answer(fa2i_worker *worker, double patience_s, fa2i_message *answer, void *out, size_t bytes,
                             fa2i_failure *failure)
{
    const double seconds = worker->silent_s * fmax(1, patience_s / CHECK_S);
    const double deadline_s = worker->modelled ? 0 : fa2i_now_s() + seconds;
    fa2i_pipe state = fa2i_pipe_read(worker->process.from, answer, sizeof *answer, deadline_s);
    bool known = state == FA2I_PIPE_OK && answer->magic == FA2I_PROTOCOL_MAGIC;
    bool good = known && answer->state == FA2I_ANSWER_OK;
    if (state == FA2I_PIPE_OK && (!known || (good && answer->bytes != bytes)))
        state = FA2I_PIPE_CLOSED;
    else if (good)
        state = fa2i_pipe_read(worker->process.from, out, bytes, deadline_s);
    else if (known)
        state = read_detail(worker, answer, deadline_s, failure);
    if (state != FA2I_PIPE_OK)
        give_up(worker, state, seconds, failure);
    else if (!good && answer->state != FA2I_ANSWER_FAILED)
        fa2i_worker_end(worker, NULL, 0);
    return good && state == FA2I_PIPE_OK;
}

/* Makes a request that launches nothing, and waits for its only answer. */
static bool ask(fa2i_worker *worker, fa2i_message *request, const void *payload, fa2i_failure *failure)
{
    fa2i_message answer;
    fa2i_pipe_send(worker->process.to, request, payload); /* a dead worker shows in the missing answer */
    return fa2i_worker_next_answer(worker, 0, &answer, NULL, 0, failure);
}

static fa2_status ensure_open(fa2i_worker *worker)
{
    fa2i_failure failure = {0};
    fa2i_message request = {.request = FA2I_REQUEST_OPEN, .id = (uint32_t)worker->ordinal};
    if (worker->process.pid != 0)
        return FA2_OK;
    fa2_status st = fa2i_process_start(&worker->process);
    if (st != FA2_OK || ask(worker, &request, NULL, &failure))
        return st;
    fa2i_worker_end(worker, NULL, 0); /* it has no device for any later request */
    return fa2i_fail(FA2_E_CUDA, "the worker cannot use device %d: %s", worker->ordinal, failure.detail);
}

static fa2_status ensure_case(fa2i_worker *worker)
{
    fa2i_failure failure = {0};
    fa2i_message request = {.request = FA2I_REQUEST_CASE, .bytes = sizeof worker->current};
    fa2_status st = ensure_open(worker);
    if (st != FA2_OK || worker->case_sent || !worker->has_case)
        return st;
    if (!ask(worker, &request, &worker->current, &failure))
        return fa2i_fail(FA2_E_CUDA, "%s", failure.detail);
    worker->case_sent = true;
    return FA2_OK;
}

static fa2_status reserve_loaded(fa2i_worker *worker, uint32_t id)
{
    const size_t before = worker->loaded_count;
    const fa2_status st = FA2I_GROW(worker->loaded, (size_t)id + 1, worker->loaded_count);
    if (st == FA2_OK)
        memset(worker->loaded + before, 0, (worker->loaded_count - before) * sizeof *worker->loaded);
    return st;
}

fa2_status fa2i_worker_ensure_loaded(fa2i_worker *worker, uint32_t id, fa2i_failure *failure)
{
    fa2_status st = FA2_OK;
    unsigned char *payload = NULL;
    *failure = (fa2i_failure){0};
    FA2_TRY(ensure_case(worker));
    FA2_TRY(reserve_loaded(worker, id));
    if (worker->loaded[id])
        goto done;
    const fa2i_kernel *kernel = worker->kernel(worker->user, id);
    fa2i_kernel_head head = {.variant = kernel->variant};
    memcpy(head.target, kernel->target, sizeof head.target);
    fa2i_message request = {.request = FA2I_REQUEST_LOAD, .id = id, .bytes = sizeof head + kernel->image.bytes};
    FA2_TRY(fa2i_new(&payload, (size_t)request.bytes, 1));
    memcpy(payload, &head, sizeof head);
    memcpy(payload + sizeof head, kernel->image.data, kernel->image.bytes);
    if (ask(worker, &request, payload, failure))
        worker->loaded[id] = worker->takes_images = true;
done:
    fa2i_free(payload);
    return st;
}

fa2_status fa2i_worker_create(int ordinal, bool modelled, fa2i_kernel_fn kernel, void *user,
                              const volatile sig_atomic_t *stop, fa2i_worker **ret_worker)
{
    fa2_status st = FA2_OK;
    fa2i_worker *worker = NULL;
    FA2_TRY(FA2I_NEW(worker, 1));
    *worker = (fa2i_worker){.ordinal = ordinal,
                            .modelled = modelled,
                            .kernel = kernel,
                            .user = user,
                            .stop = stop,
                            .silent_s = SILENT_S,
                            .process = FA2I_PROCESS_NONE};
    signal(SIGPIPE, SIG_IGN);
    FA2_TRY(ensure_open(worker));
    *ret_worker = worker;
    worker = NULL;
done:
    fa2i_worker_destroy(worker);
    return st;
}

void fa2i_worker_destroy(fa2i_worker *worker)
{
    if (worker == NULL)
        return;
    fa2i_worker_end(worker, NULL, 0); /* idle or busy: nothing of it remains */
    fa2i_free(worker->loaded);
    fa2i_free(worker);
}

fa2_status fa2i_worker_case(fa2i_worker *worker, const fa2i_case *c)
{
    worker->current = *c;
    worker->expected_us = 0;
    worker->case_sent = false;
    worker->has_case = true;
    fa2_status st = ensure_case(worker);
    worker->has_case = st == FA2_OK;
    return st;
}

void fa2i_worker_set_warmth(fa2i_worker *worker, fa2i_warmth warmth)
{
    worker->warmth = warmth;
}

void fa2i_worker_expect(fa2i_worker *worker, double us)
{
    worker->expected_us = us;
}

double fa2i_worker_patience_s(const fa2i_worker *worker, double least_s, int launches, double best_us)
{
    const fa2_problem *problem = &worker->current.problem;
    const double slow_s = 1e-6 * SLOW_TIMES * fmax(best_us, worker->expected_us);
    return fmax(least_s, launches * fmax(slow_s, fa2i_op_of(problem)->flop_unmasked(problem) / SLOW_FLOPS));
}

static fa2_status check_once(fa2i_worker *worker, uint32_t id, const fa2i_place *places, size_t count, void *out,
                             size_t bytes, uint32_t *ret_overwritten, double patience_s, fa2i_failure *failure)
{
    fa2i_message answer;
    fa2i_message request = {.request = FA2I_REQUEST_CHECK,
                            .id = id,
                            .count = (uint32_t)count,
                            .bytes = count * sizeof *places,
                            .patience_s = patience_s};
    fa2_status st = fa2i_worker_ensure_loaded(worker, id, failure);
    if (st != FA2_OK || failure->outcome != FA2I_OUTCOME_OK)
        return st;
    fa2i_pipe_send(worker->process.to, &request, places);
    if (fa2i_worker_next_answer(worker, patience_s, &answer, out, bytes, failure))
        *ret_overwritten = answer.count;
    return FA2_OK;
}

/* Says whether the kernel may be innocent of this failure, unless it happens again. */
static bool may_be_innocent(const fa2i_failure *failure)
{
    return failure->blame == FA2I_BLAME_LOST || failure->blame == FA2I_BLAME_LATE;
}

fa2_status fa2i_worker_check(fa2i_worker *worker, uint32_t id, const fa2i_place *places, size_t count, void *out,
                             size_t bytes, uint32_t *ret_overwritten, fa2i_failure *failure)
{
    const double patience_s = fa2i_worker_patience_s(worker, CHECK_S, 1, 0);
    fa2_status st = check_once(worker, id, places, count, out, bytes, ret_overwritten, patience_s, failure);
    if (st == FA2_OK && may_be_innocent(failure) && !fa2i_worker_stop_wanted(worker))
        st = check_once(worker, id, places, count, out, bytes, ret_overwritten, FA2I_LATE_AGAIN * patience_s, failure);
    if (st != FA2_OK)
        return st;
    if (fa2i_worker_stop_wanted(worker) && failure->outcome != FA2I_OUTCOME_OK)
        failure->blame = FA2I_BLAME_STOP;
    else if (may_be_innocent(failure))
        failure->blame = FA2I_BLAME_KERNEL;
    return fa2i_failure_status(failure);
}

fa2_status fa2i_worker_probe(fa2i_worker *worker, uint32_t id, const fa2i_probe *probe, double *ret_us,
                             uint32_t *ret_blocks, fa2i_failure *failure)
{
    fa2i_message answer;
    fa2i_message request = {.request = FA2I_REQUEST_PROBE, .id = id, .bytes = sizeof *probe, .patience_s = PROBE_S};
    fa2_status st = fa2i_worker_ensure_loaded(worker, id, failure);
    if (st != FA2_OK || failure->outcome != FA2I_OUTCOME_OK)
        return st;
    worker->case_sent = false; /* the child frees its case for the probe's memory */
    fa2i_pipe_send(worker->process.to, &request, probe);
    if (fa2i_worker_next_answer(worker, PROBE_S, &answer, NULL, 0, failure)) {
        *ret_us = answer.us;
        *ret_blocks = answer.count;
    }
    if (may_be_innocent(failure))
        failure->blame = FA2I_BLAME_KERNEL;
    return FA2_OK;
}
