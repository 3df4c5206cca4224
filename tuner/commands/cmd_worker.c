/*
 * The worker process answers the parent's requests (tuner/worker/protocol.h) until the pipe ends or CUDA is broken. It
 * must not outlive its parent, even while a kernel spins; then the operating system kills it.
 *
 * Ctrl-C goes to the whole process group, and so may SIGTERM and SIGHUP (timeout, systemd, scancel, a closed terminal).
 * The parent decides what they mean, so the worker ignores them.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include "runtime/base/alloc.h"
#include "tuner/worker/bench_gpu.h"
#include "tuner/commands/commands.h"
#include "tuner/worker/protocol.h"

/* A request with its payload, and the answer to it. */
typedef struct exchange {
    fa2i_message request;
    unsigned char *payload; /* owned; request.bytes, and a NUL after them */
    fa2i_message answer;
    unsigned char *output; /* owned; answer.bytes */
} exchange;

static void exchange_done(exchange *e)
{
    fa2i_free(e->payload);
    fa2i_free(e->output);
    *e = (exchange){0};
}

static bool receive(exchange *e)
{
    fa2i_message *request = &e->request;
    if (fa2i_pipe_read(FA2I_WORKER_FD_IN, request, sizeof *request, 0) != FA2I_PIPE_OK ||
        request->magic != FA2I_PROTOCOL_MAGIC)
        return false;
    e->payload = fa2i_alloc((size_t)request->bytes);
    return e->payload != NULL &&
           fa2i_pipe_read(FA2I_WORKER_FD_IN, e->payload, (size_t)request->bytes, 0) == FA2I_PIPE_OK;
}

/* Sends the answer. After a failure it says why. Returns false when the worker should end. */
static bool answer(const fa2i_bench *bench, exchange *e, fa2_status status)
{
    const void *output = e->output;
    e->answer.request = e->request.request;
    e->answer.id = e->request.id;
    if (status != FA2_OK) {
        e->answer.state = fa2i_bench_broken(bench) ? FA2I_ANSWER_BROKEN : FA2I_ANSWER_FAILED;
        e->answer.status = (uint32_t)status;
        e->answer.result = (int32_t)bench->result;
        output = fa2_last_message();
        e->answer.bytes = strlen(output);
    }
    bool sent = fa2i_pipe_send(FA2I_WORKER_FD_OUT, &e->answer, output) == FA2I_PIPE_OK;
    return sent && e->answer.state != FA2I_ANSWER_BROKEN;
}

static fa2_status serve_load(fa2i_bench *bench, exchange *e)
{
    fa2i_kernel_head head;
    fa2i_kernel kernel = {.outcome = FA2I_OUTCOME_OK};
    if (e->request.bytes <= sizeof head)
        return fa2i_fail(FA2_E_INVALID, "a LOAD request without an image");
    memcpy(&head, e->payload, sizeof head);
    kernel.variant = head.variant;
    memcpy(kernel.target, head.target, sizeof kernel.target);
    kernel.image.data = e->payload + sizeof head; /* borrowed during the call */
    kernel.image.bytes = (size_t)e->request.bytes - sizeof head;
    return fa2i_bench_load(bench, e->request.id, &kernel);
}

static fa2_status serve_case(fa2i_bench *bench, exchange *e)
{
    fa2i_case c;
    if (e->request.bytes != sizeof c)
        return fa2i_fail(FA2_E_INVALID, "a CASE request of the wrong size");
    memcpy(&c, e->payload, sizeof c);
    return fa2i_bench_case(bench, &c);
}

static fa2_status serve_check(fa2i_bench *bench, exchange *e)
{
    fa2_status st = FA2_OK;
    size_t count = e->request.count;
    const fa2i_place *places = (const fa2i_place *)(const void *)e->payload;
    if (e->request.bytes != count * sizeof *places)
        return fa2i_fail(FA2_E_INVALID, "a CHECK request of the wrong size");
    FA2_TRY(fa2i_bench_launch(bench, e->request.id, &e->answer.count));
    size_t bytes = fa2i_bench_output_bytes(bench, places, count);
    FA2_TRY(fa2i_new(&e->output, bytes, 1));
    FA2_TRY(fa2i_bench_output(bench, places, count, e->output));
    e->answer.bytes = bytes;
done:
    return st;
}

/* Sends one answer per sample. A failed sample does not end the batch unless CUDA is broken. */
static bool serve_samples(fa2i_bench *bench, exchange *e)
{
    size_t count = e->request.count;
    const uint32_t *ids = (const uint32_t *)(const void *)e->payload;
    const fa2i_warmth warmth = (fa2i_warmth)e->request.id;
    if (e->request.bytes != count * sizeof *ids)
        return answer(bench, e, fa2i_fail(FA2_E_INVALID, "a SAMPLE request of the wrong size"));
    for (size_t i = 0; i < count; i++) {
        e->answer = (fa2i_message){0};
        e->request.id = ids[i];
        bench->result = CUDA_SUCCESS;
        fa2_status st = fa2i_bench_sample(bench, ids[i], (int)e->request.launches, warmth, &e->answer.us);
        if (!answer(bench, e, st))
            return false;
    }
    return true;
}

static fa2_status serve_probe(fa2i_bench *bench, exchange *e)
{
    fa2i_probe probe;
    if (e->request.bytes != sizeof probe)
        return fa2i_fail(FA2_E_INVALID, "a PROBE request of the wrong size");
    memcpy(&probe, e->payload, sizeof probe);
    return fa2i_bench_probe(bench, e->request.id, &probe, &e->answer.us, &e->answer.count);
}

static bool serve(fa2i_bench *bench, exchange *e)
{
    bench->result = CUDA_SUCCESS;
    bench->patience_s = e->request.patience_s;
    switch ((fa2i_request)e->request.request) {
    case FA2I_REQUEST_OPEN:
        return answer(bench, e, fa2i_bench_open(bench, (int)e->request.id));
    case FA2I_REQUEST_LOAD:
        return answer(bench, e, serve_load(bench, e));
    case FA2I_REQUEST_CASE:
        return answer(bench, e, serve_case(bench, e));
    case FA2I_REQUEST_CHECK:
        return answer(bench, e, serve_check(bench, e));
    case FA2I_REQUEST_SAMPLE:
        return serve_samples(bench, e);
    case FA2I_REQUEST_PROBE:
        return answer(bench, e, serve_probe(bench, e));
    }
    return false;
}

static void die_with_parent(void)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
}

int fa2i_cmd_worker(int argc, char **argv)
{
    static fa2i_watch watch; /* its thread uses it until the process ends */
    fa2i_bench bench = {.watch = &watch};
    exchange e = {0};
    (void)argc, (void)argv;
    die_with_parent(); /* if the parent is dead already, the pipe has ended */
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    if (fa2i_watch_start(&watch, FA2I_WORKER_FD_OUT) != FA2_OK)
        return FA2I_EXIT_FAILED;
    while (receive(&e) && serve(&bench, &e))
        exchange_done(&e);
    bool broken = e.answer.state == FA2I_ANSWER_BROKEN;
    exchange_done(&e);
    if (broken) /* nothing can be released in a broken context */
        _exit(FA2I_EXIT_FAILED);
    fa2i_bench_done(&bench);
    return FA2I_EXIT_OK;
}
