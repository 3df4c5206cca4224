/*
 * Starting, asking, killing and replacing the worker process.
 *
 * Invariants:
 * - pid == 0: there is no process; then case_sent is false and nothing is loaded;
 * - between calls the process is idle: every answer was read, or the process was killed. So a write
 *   cannot block, and a request whose answer does not come is the culprit.
 * - A kernel is loaded when it is first used, also after a restart.
 * - A failure of the environment ends the request with a status. It never becomes an outcome,
 *   because outcomes are stored for ever.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/ops/op.h"
#include "tuner/report/progress.h"
#include "tuner/worker/protocol.h"
#include "tuner/worker/worker.h"

#define OPEN_S         60.0
#define CASE_S         60.0
#define LOAD_S         30.0
#define CHECK_S        5.0
#define SAMPLE_S       2.0
#define SLOW_FLOPS     1e12 /* no kernel worth waiting for is slower */
#define SLOW_SIM_FLOPS 3e6  /* nor is a software device, on a busy machine */

extern char **environ;

struct fa2i_worker {
    int ordinal;
    bool modelled;
    fa2i_kernel_fn kernel;
    void *user;
    const volatile sig_atomic_t *stop;
    pid_t pid;
    int to, from; /* pipe ends; -1: none */
    fa2i_case current;
    bool has_case, case_sent;
    bool *loaded; /* by id */
    size_t loaded_count;
    bool takes_images; /* the driver took one, in this process or an earlier one */
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Kill the process, wait for it (the driver may need seconds to take back what a spinning kernel
 * held), and say how it ended. */
static void kill_process(fa2i_worker *worker, char *how, size_t how_bytes)
{
    int status = 0;
    close_fd(&worker->to);
    close_fd(&worker->from);
    if (worker->pid > 0) {
        kill(worker->pid, SIGKILL);
        while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    if (how != NULL && WIFSIGNALED(status))
        snprintf(how, how_bytes, "the worker process died of signal %d", WTERMSIG(status));
    else if (how != NULL)
        snprintf(how, how_bytes, "the worker process ended with status %d", WEXITSTATUS(status));
    worker->pid = 0;
    worker->case_sent = false;
    if (worker->loaded_count > 0)
        memset(worker->loaded, 0, worker->loaded_count * sizeof *worker->loaded);
}

/* A pipe whose ends are above the two descriptors that the worker finds them at, closed on exec. */
static bool make_pipe(int ends[2])
{
    int low[2];
    if (pipe(low) != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, FA2I_WORKER_FD_OUT + 1);
        close(low[i]);
    }
    return ends[0] >= 0 && ends[1] >= 0;
}

/* Signals to the whole process group are not for the worker. It ignores them as soon as it can;
 * they are blocked from its first moment. */
static void block_group_signals(posix_spawnattr_t *attributes)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    posix_spawnattr_init(attributes);
    posix_spawnattr_setsigmask(attributes, &blocked);
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK);
}

static fa2_status spawn(fa2i_worker *worker)
{
    fa2_status st = FA2_OK;
    int request[2] = {-1, -1}, answer[2] = {-1, -1};
    char *argv[] = {"fa2-tune", "worker", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    block_group_signals(&attributes);

    if (!make_pipe(request) || !make_pipe(answer))
        FA2_TRY(fa2i_fail(FA2_E_IO, "cannot make a pipe: %s", strerror(errno)));
    posix_spawn_file_actions_adddup2(&actions, request[0], FA2I_WORKER_FD_IN);
    posix_spawn_file_actions_adddup2(&actions, answer[1], FA2I_WORKER_FD_OUT);
    int error = posix_spawn(&worker->pid, "/proc/self/exe", &actions, &attributes, argv, environ);
    if (error != 0) {
        worker->pid = 0;
        FA2_TRY(fa2i_fail(FA2_E_IO, "cannot start the worker process: %s", strerror(error)));
    }
    worker->to = request[1];
    worker->from = answer[0];
    request[1] = answer[0] = -1;
done:
    for (int i = 0; i < 2; i++) {
        close_fd(&request[i]);
        close_fd(&answer[i]);
    }
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return st;
}

/* ---- failures ---- */

static bool stop_wanted(const fa2i_worker *worker)
{
    return worker->stop != NULL && *worker->stop != 0;
}

static void set_failure(fa2i_failure *failure, fa2i_outcome outcome, fa2i_blame blame,
                        const char *detail)
{
    failure->outcome = outcome;
    failure->blame = blame;
    snprintf(failure->detail, sizeof failure->detail, "%s", detail);
}

/* Whose fault is an error of the driver, after which the worker goes on? The rule is that of
 * runtime/plan/kernels.c, where nothing is stored; here, what says that the driver takes no such code
 * at all is nobody's verdict. */
static fa2i_blame blame_for_error(const fa2i_worker *worker, int32_t result)
{
    switch (result) {
    case CUDA_SUCCESS:             /* not known: a launch was refused */
    case CUDA_ERROR_INVALID_VALUE: /* more shared memory than the device grants */
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    case CUDA_ERROR_NOT_FOUND: /* the image lacks the entry point */
        return FA2I_BLAME_KERNEL;
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_SOURCE:
        return worker->takes_images ? FA2I_BLAME_KERNEL : FA2I_BLAME_IMAGE;
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
        return FA2I_BLAME_MISFIT;
    default: /* device memory among them */
        return FA2I_BLAME_ENVIRONMENT;
    }
}

/* Whose fault is an answer that is not OK? */
static fa2i_blame blame_for(const fa2i_worker *worker, const fa2i_message *answer)
{
    if (answer->state == FA2I_ANSWER_BROKEN)
        return answer->result == CUDA_ERROR_NO_DEVICE ||
                       answer->result == CUDA_ERROR_ECC_UNCORRECTABLE
                   ? FA2I_BLAME_ENVIRONMENT
                   : FA2I_BLAME_KERNEL;
    switch ((fa2_status)answer->status) {
    case FA2_E_UNSUPPORTED: /* no SM can hold it, or no grid can */
        return FA2I_BLAME_KERNEL;
    case FA2_E_CUDA:
        return blame_for_error(worker, answer->result);
    default:
        return FA2I_BLAME_ENVIRONMENT;
    }
}

fa2_status fa2i_worker_misfit(const char *detail)
{
    return fa2i_fail(FA2_E_CUDA,
                     "the driver does not take the code of this NVRTC, so that no kernel can be "
                     "judged; update the driver or use an older NVRTC (FA2_NVRTC_PATH): %s",
                     detail);
}

/* The status of a failure: FA2_OK if the kernel is to blame, or may be. */
static fa2_status failure_status(const fa2i_failure *failure)
{
    if (failure->outcome == FA2I_OUTCOME_OK)
        return FA2_OK;
    if (failure->blame == FA2I_BLAME_MISFIT)
        return fa2i_worker_misfit(failure->detail);
    if (failure->blame == FA2I_BLAME_ENVIRONMENT)
        return fa2i_fail(FA2_E_CUDA, "%s", failure->detail);
    return FA2_OK;
}

/* ---- asking ---- */

/* Read the sentence of an answer that is not OK. */
static fa2i_pipe read_detail(fa2i_worker *worker, const fa2i_message *answer, double deadline_s,
                             fa2i_failure *failure)
{
    char text[FA2I_MESSAGE_BYTES] = "";
    bool broken = answer->state == FA2I_ANSWER_BROKEN;
    if (answer->bytes >= sizeof text)
        return FA2I_PIPE_CLOSED;
    fa2i_pipe state = fa2i_pipe_read(worker->from, text, (size_t)answer->bytes, deadline_s);
    if (state == FA2I_PIPE_OK)
        set_failure(failure, broken ? FA2I_OUTCOME_FAULT : FA2I_OUTCOME_LAUNCH_ERROR,
                    blame_for(worker, answer), text);
    return state;
}

/* The process did not answer as it should: it is ended, and failure tells why. */
static void give_up(fa2i_worker *worker, fa2i_pipe state, double seconds, fa2i_failure *failure)
{
    char how[64];
    kill_process(worker, how, sizeof how);
    if (state == FA2I_PIPE_LATE)
        snprintf(how, sizeof how, "not finished after %.1f s", seconds);
    if (state == FA2I_PIPE_LATE)
        set_failure(failure, FA2I_OUTCOME_HANG, FA2I_BLAME_KERNEL, how);
    else
        set_failure(failure, FA2I_OUTCOME_FAULT, FA2I_BLAME_LOST, how);
}

/* The next answer, within this time. False: failure tells why, and unless it is LAUNCH_ERROR the
 * process is gone. out gets the payload of a good answer, which must be `bytes` long. */
static bool next_answer(fa2i_worker *worker, double seconds, fa2i_message *answer, void *out,
                        size_t bytes, fa2i_failure *failure)
{
    double deadline_s = fa2i_now_s() + seconds;
    fa2i_pipe state = fa2i_pipe_read(worker->from, answer, sizeof *answer, deadline_s);
    bool known = state == FA2I_PIPE_OK && answer->magic == FA2I_PROTOCOL_MAGIC;
    bool good = known && answer->state == FA2I_ANSWER_OK;
    if (state == FA2I_PIPE_OK && (!known || (good && answer->bytes != bytes)))
        state = FA2I_PIPE_CLOSED;
    else if (good)
        state = fa2i_pipe_read(worker->from, out, bytes, deadline_s);
    else if (known)
        state = read_detail(worker, answer, deadline_s, failure);
    if (state != FA2I_PIPE_OK)
        give_up(worker, state, seconds, failure);
    else if (!good && answer->state == FA2I_ANSWER_BROKEN)
        kill_process(worker, NULL, 0);
    return good && state == FA2I_PIPE_OK;
}

/* Ask, and wait for the one answer. */
static bool ask(fa2i_worker *worker, fa2i_message *request, const void *payload, double seconds,
                fa2i_failure *failure)
{
    fa2i_message answer;
    fa2i_pipe_send(worker->to, request, payload); /* a dead worker shows in the answer */
    return next_answer(worker, seconds, &answer, NULL, 0, failure);
}

static fa2_status ensure_open(fa2i_worker *worker)
{
    fa2i_failure failure = {0};
    fa2i_message request = {.request = FA2I_REQUEST_OPEN, .id = (uint32_t)worker->ordinal};
    if (worker->pid != 0)
        return FA2_OK;
    fa2_status st = spawn(worker);
    if (st != FA2_OK || ask(worker, &request, NULL, OPEN_S, &failure))
        return st;
    kill_process(worker, NULL, 0); /* it has no device, whatever it is asked next */
    return fa2i_fail(FA2_E_CUDA, "the worker cannot use device %d: %s", worker->ordinal,
                     failure.detail);
}

static fa2_status ensure_case(fa2i_worker *worker)
{
    fa2i_failure failure = {0};
    fa2i_message request = {.request = FA2I_REQUEST_CASE, .bytes = sizeof worker->current};
    fa2_status st = ensure_open(worker);
    if (st != FA2_OK || worker->case_sent || !worker->has_case)
        return st;
    if (!ask(worker, &request, &worker->current, CASE_S, &failure))
        return fa2i_fail(FA2_E_CUDA, "%s", failure.detail);
    worker->case_sent = true;
    return FA2_OK;
}

static fa2_status reserve_loaded(fa2i_worker *worker, uint32_t id)
{
    if (id < worker->loaded_count)
        return FA2_OK;
    size_t count = 2 * ((size_t)id + 1);
    bool *loaded = fa2i_realloc(worker->loaded, count * sizeof *loaded);
    if (loaded == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu kernels", count);
    memset(loaded + worker->loaded_count, 0, (count - worker->loaded_count) * sizeof *loaded);
    worker->loaded = loaded;
    worker->loaded_count = count;
    return FA2_OK;
}

/* Have a process with the case and this kernel in it; failure is the kernel's. */
static fa2_status ensure_loaded(fa2i_worker *worker, uint32_t id, fa2i_failure *failure)
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
    fa2i_message request = {
        .request = FA2I_REQUEST_LOAD, .id = id, .bytes = sizeof head + kernel->image.bytes};
    payload = fa2i_alloc((size_t)request.bytes);
    if (payload == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for a kernel's image"));
    memcpy(payload, &head, sizeof head);
    memcpy(payload + sizeof head, kernel->image.data, kernel->image.bytes);
    if (ask(worker, &request, payload, LOAD_S, failure))
        worker->loaded[id] = worker->takes_images = true;
done:
    fa2i_free(payload);
    return st;
}

fa2_status fa2i_worker_create(int ordinal, bool modelled, fa2i_kernel_fn kernel, void *user,
                              const volatile sig_atomic_t *stop, fa2i_worker **ret_worker)
{
    fa2_status st = FA2_OK;
    fa2i_worker *worker = fa2i_alloc(sizeof *worker);
    if (worker == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for the worker");
    *worker = (fa2i_worker){.ordinal = ordinal,
                            .modelled = modelled,
                            .kernel = kernel,
                            .user = user,
                            .stop = stop,
                            .to = -1,
                            .from = -1};
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
    kill_process(worker, NULL, 0); /* idle or busy: it holds nothing that outlives it */
    fa2i_free(worker->loaded);
    fa2i_free(worker);
}

fa2_status fa2i_worker_case(fa2i_worker *worker, const fa2i_case *c)
{
    worker->current = *c;
    worker->case_sent = false;
    worker->has_case = true;
    fa2_status st = ensure_case(worker);
    worker->has_case = st == FA2_OK;
    return st;
}

/* The least time that launches of the present case are given: on a GPU as if there was one, since
 * the bounds are far away. */
static double patience_s(const fa2i_worker *worker, double least_s, int launches)
{
    const double flop = fa2i_problem_flop(&worker->current.problem);
    return fmax(least_s, worker->modelled ? flop * launches / SLOW_SIM_FLOPS : flop / SLOW_FLOPS);
}

static fa2_status check_once(fa2i_worker *worker, uint32_t id, const fa2i_place *places,
                             size_t count, void *out, size_t bytes, uint32_t *ret_overwritten,
                             fa2i_failure *failure)
{
    fa2i_message answer;
    fa2i_message request = {.request = FA2I_REQUEST_CHECK,
                            .id = id,
                            .count = (uint32_t)count,
                            .bytes = count * sizeof *places};
    fa2_status st = ensure_loaded(worker, id, failure);
    if (st != FA2_OK || failure->outcome != FA2I_OUTCOME_OK)
        return st;
    fa2i_pipe_send(worker->to, &request, places);
    if (next_answer(worker, patience_s(worker, CHECK_S, 1), &answer, out, bytes, failure))
        *ret_overwritten = answer.count;
    return FA2_OK;
}

fa2_status fa2i_worker_check(fa2i_worker *worker, uint32_t id, const fa2i_place *places,
                             size_t count, void *out, size_t bytes, uint32_t *ret_overwritten,
                             fa2i_failure *failure)
{
    fa2_status st = check_once(worker, id, places, count, out, bytes, ret_overwritten, failure);
    if (st == FA2_OK && failure->blame == FA2I_BLAME_LOST && !stop_wanted(worker))
        st = check_once(worker, id, places, count, out, bytes, ret_overwritten, failure);
    if (st != FA2_OK)
        return st;
    if (stop_wanted(worker) && failure->outcome != FA2I_OUTCOME_OK)
        failure->blame = FA2I_BLAME_STOP;
    else if (failure->blame == FA2I_BLAME_LOST)
        failure->blame = FA2I_BLAME_KERNEL;
    return failure_status(failure);
}

/* ---- sampling ---- */

typedef struct batch {
    fa2i_worker *worker;
    fa2i_sample *samples;
    size_t count;
    const uint32_t *ids;
    int launches;
    double seconds;    /* per sample */
    uint32_t *pending; /* indexes of samples not taken yet */
    uint32_t *queue;   /* their kernel ids */
    size_t pending_count;
    fa2i_failure *failures;
} batch;

/* A contender failed: its samples that are still to be taken will not be. Unless the user stops,
 * which may be why it failed; or the process was lost for the first time; or the fault is not the
 * kernel's, which is a status. */
static fa2_status fail_contender(batch *b, uint32_t contender, const fa2i_failure *now)
{
    fa2i_failure *failure = &b->failures[contender];
    if (stop_wanted(b->worker))
        return FA2_OK;
    if (now->blame == FA2I_BLAME_LOST && failure->blame != FA2I_BLAME_LOST) {
        failure->blame = FA2I_BLAME_LOST; /* outcome stays OK */
        return FA2_OK;
    }
    if (now->blame == FA2I_BLAME_IMAGE)
        return fa2i_worker_misfit(now->detail);
    fa2_status st = failure_status(now);
    if (st != FA2_OK)
        return st;
    set_failure(failure, now->outcome, FA2I_BLAME_KERNEL, now->detail);
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
 * when the user stops. */
static fa2_status load_pending(batch *b)
{
    bool again = true;
    while (again && !stop_wanted(b->worker)) {
        again = false;
        for (size_t i = 0; i < b->count; i++) {
            uint32_t contender = b->samples[i].contender;
            fa2i_failure now = {0};
            if (b->samples[i].taken)
                continue;
            fa2_status st = ensure_loaded(b->worker, b->ids[contender], &now);
            if (st == FA2_OK && now.outcome != FA2I_OUTCOME_OK)
                st = fail_contender(b, contender, &now);
            if (st != FA2_OK)
                return st;
            again = again || b->worker->pid == 0; /* what was loaded before is gone, too */
        }
    }
    return FA2_OK;
}

/* Read the answer for one sample. Those of a contender that has failed since come all the same. */
static fa2_status read_sample(batch *b, fa2i_sample *sample)
{
    fa2i_message answer;
    fa2i_failure now = {0};
    bool good = next_answer(b->worker, b->seconds, &answer, NULL, 0, &now);
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
                            .count = (uint32_t)b->pending_count,
                            .launches = (uint32_t)b->launches,
                            .bytes = b->pending_count * sizeof *b->queue};
    fa2i_pipe_send(worker->to, &request, b->queue);
    for (size_t i = 0; i < b->pending_count && worker->pid != 0; i++) {
        fa2_status st = read_sample(b, &b->samples[b->pending[i]]);
        bool last = i + 1 == b->pending_count;
        if (!last && worker->pid != 0 && (st != FA2_OK || stop_wanted(worker)))
            kill_process(worker, NULL, 0); /* it would go on with the rest of the batch */
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
    b.seconds = fmax(patience_s(worker, SAMPLE_S, launches), 50e-6 * best_us * launches);
    while (!stop_wanted(worker)) {
        FA2_TRY(load_pending(&b));
        collect_pending(&b);
        if (b.pending_count == 0 || stop_wanted(worker))
            break;
        FA2_TRY(run_pending(&b));
    }
done:
    fa2i_free(b.pending);
    fa2i_free(b.queue);
    return st;
}
