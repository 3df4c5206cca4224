/*
 * The worker process and its client. This program is its own worker: called with `worker` it serves requests on the
 * fake driver, with kernels that misbehave in every way (fake_attention.h).
 */
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include "check.h"
#include "fake_attention.h"
#include "recipe_fixture.h"
#include "tuner/commands/commands.h"
#include "tuner/worker/protocol.h"
#include "tuner/judge/verify.h"
#include "tuner/worker/worker_internal.h"

extern char **environ;

enum {
    GOOD,
    WRONG,
    OUTSIDE,
    FAULT,
    HANG,
    DIES,
    TOO_BIG,
    DAMAGED,
    GOOD_TOO,
    KILLED,
    LATE,
    SLOW,
    SILENT,
    NEWER,
    KERNELS
};

static const struct plan {
    const char *entry, *text;
} plans[KERNELS] = {[GOOD] = {"fwd_sm80", "// good"},
                    [WRONG] = {"fwd_sm80", "// behave=wrong"},
                    [OUTSIDE] = {"fwd_sm80", "// behave=outside"},
                    [FAULT] = {"test_fault", "// fault"},
                    [HANG] = {"test_hang", "// hang"},
                    [DIES] = {"fwd_sm80", "// behave=die"},
                    [TOO_BIG] = {"fwd_sm80", "// too big"},
                    [DAMAGED] = {"fwd_sm80", "// damaged"},
                    [GOOD_TOO] = {"fwd_sm80", "// good, too"},
                    [KILLED] = {"fwd_sm80", "// behave=killed"},
                    [LATE] = {"fwd_sm80", "// behave=late"},
                    [SLOW] = {"fwd_sm80", "// behave=slow"},
                    [SILENT] = {"fwd_sm80", "// behave=silent"},
                    [NEWER] = {"fwd_sm80", "// for an SM that is not here"}};

static fa2i_kernel kernels[KERNELS];
static volatile sig_atomic_t stop;

static const fa2i_kernel *kernel_of(void *user, uint32_t id)
{
    CHECK(user == kernels);
    return &kernels[id];
}

static void make_kernels(void)
{
    for (int i = 0; i < KERNELS; i++) {
        char source[256];
        snprintf(source, sizeof source, "constexpr int kHeadDim = 16; %s\n", plans[i].text);
        kernels[i].variant.recipe = plain_recipe(plans[i].entry, 128, 64, 64, i == TOO_BIG ? 1 << 20 : 8192);
        snprintf(kernels[i].variant.text, sizeof kernels[i].variant.text, "%s d=16 id=%d", plans[i].entry, i);
        strcpy(kernels[i].target, i == NEWER ? "sm_90" : "sm_86");
        fake_image(plans[i].entry, kernels[i].target, source, &kernels[i].image);
    }
    ((char *)kernels[DAMAGED].image.data)[kernels[DAMAGED].image.bytes - 4] ^= 1;
}

static const fa2i_case small = {
    .problem = {.batch = 1, .heads_q = 2, .heads_kv = 1, .seq_q = 33, .seq_k = 40, .head_dim = 16},
    .layout = FA2I_LAYOUT_GAPPED,
    .want_lse = 1,
    .q_magnitude = 1,
    .seed = 3};

static fa2i_worker *start(void)
{
    fa2i_worker *worker = NULL;
    CHECK_EQ(fa2i_worker_create(0, false, kernel_of, kernels, &stop, &worker), FA2_OK);
    return worker;
}

/* Runs a kernel on the small case, with room for all outputs. They are not checked. */
static fa2_status run_small(fa2i_worker *worker, uint32_t id, fa2i_failure *ret_failure)
{
    fa2i_expected e = {0};
    uint32_t overwritten = 0;
    CHECK_EQ(fa2i_expected_all(&small, 1, &e), FA2_OK);
    unsigned char *output = malloc(e.output_bytes);
    const fa2_status st = fa2i_worker_check(worker, id, NULL, 0, output, e.output_bytes, &overwritten, ret_failure);
    free(output);
    fa2i_expected_done(&e);
    return st;
}

/* Verifies a kernel on the small case. */
static fa2i_verification check_kernel(fa2i_worker *worker, uint32_t id, const fa2i_expected *e)
{
    fa2i_failure failure = {0};
    fa2i_verification verdict = {0};
    uint32_t overwritten = 0;
    unsigned char *output = malloc(e->output_bytes);
    CHECK_EQ(fa2i_worker_check(worker, id, e->places, e->all ? 0 : e->place_count, output, e->output_bytes,
                               &overwritten, &failure),
             FA2_OK);
    verdict.outcome = failure.outcome;
    memcpy(verdict.detail, failure.detail, sizeof failure.detail);
    if (failure.outcome == FA2I_OUTCOME_OK)
        fa2i_expected_judge(e, "small", output, overwritten, &verdict);
    free(output);
    return verdict;
}

/* Each kind of kernel gets its outcome, and does not affect the next kernel. */
static void test_outcomes(void)
{
    static const struct {
        uint32_t id;
        fa2i_outcome outcome;
        const char *detail;
    } expected[] = {{GOOD, FA2I_OUTCOME_OK, ""},
                    {WRONG, FA2I_OUTCOME_WRONG, "x the bound"},
                    {OUTSIDE, FA2I_OUTCOME_WRONG, "1 words around"},
                    {FAULT, FA2I_OUTCOME_FAULT, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                    {HANG, FA2I_OUTCOME_HANG, "not finished after 10.0 s"},
                    {DIES, FA2I_OUTCOME_FAULT, "died of signal 9"},
                    {TOO_BIG, FA2I_OUTCOME_LAUNCH_ERROR, "shared memory"},
                    {SLOW, FA2I_OUTCOME_OK, ""},
                    {DAMAGED, FA2I_OUTCOME_LAUNCH_ERROR, ""}};
    fa2i_worker *worker = start();
    fa2i_expected e = {0}, rows = {0};
    CHECK_EQ(fa2i_expected_all(&small, 1, &e), FA2_OK);
    CHECK_EQ(fa2i_expected_sampled(&small, 2, 1, &rows), FA2_OK);
    CHECK_EQ(fa2i_worker_case(worker, &small), FA2_OK);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        fa2i_verification verdict = check_kernel(worker, expected[i].id, &e);
        CHECK_STR(fa2i_outcome_string(verdict.outcome), fa2i_outcome_string(expected[i].outcome));
        CHECK_CONTAINS(verdict.detail, expected[i].detail);
        CHECK_EQ(check_kernel(worker, GOOD_TOO, &e).outcome, FA2I_OUTCOME_OK);
    }
    CHECK_EQ(check_kernel(worker, GOOD, &rows).outcome, FA2I_OUTCOME_OK);
    fa2i_expected_done(&e);
    fa2i_expected_done(&rows);
    fa2i_worker_destroy(worker);
}

/* If another process kills the worker, or the device is late, the kernel is tried again, and passes. */
static void test_once(uint32_t id)
{
    char path[] = "/tmp/fa2-test-once-XXXXXX";
    fa2i_failure failure = {0};
    fa2i_sample samples[2] = {{0}};
    fa2i_expected e = {0};
    close(mkstemp(path));
    setenv("FA2_TEST_ONCE", path, 1);
    fa2i_worker *worker = start();
    CHECK_EQ(fa2i_expected_all(&small, 1, &e), FA2_OK);
    CHECK_EQ(fa2i_worker_case(worker, &small), FA2_OK);
    unlink(path);
    CHECK_EQ(check_kernel(worker, id, &e).outcome, FA2I_OUTCOME_OK);
    CHECK_EQ(access(path, F_OK), 0); /* the accident did happen */
    unlink(path);
    CHECK_EQ(fa2i_worker_sample(worker, samples, 2, &id, 1, 10, &failure), FA2_OK);
    CHECK_EQ(access(path, F_OK), 0);
    CHECK_EQ(failure.outcome, FA2I_OUTCOME_OK);
    CHECK(samples[0].taken && samples[1].taken && samples[1].us > 0);
    unlink(path);
    unsetenv("FA2_TEST_ONCE");
    fa2i_expected_done(&e);
    fa2i_worker_destroy(worker);
}

/* A worker that does not answer: a hang that may not be the kernel's fault. */
static void test_silence(void)
{
    fa2i_worker *worker = start();
    fa2i_failure failure = {0};
    const uint32_t id = SILENT;
    fa2i_sample sample = {0};
    worker->silent_s = 1;
    CHECK_EQ(fa2i_worker_case(worker, &small), FA2_OK);
    CHECK_EQ(run_small(worker, SILENT, &failure), FA2_OK);
    CHECK_EQ(failure.outcome, FA2I_OUTCOME_HANG);
    CHECK_EQ(failure.blame, FA2I_BLAME_SLOW);
    CHECK_CONTAINS(failure.detail, "has not answered for 1 s");
    failure = (fa2i_failure){0};
    CHECK_EQ(fa2i_worker_sample(worker, &sample, 1, &id, 1, 10, &failure), FA2_OK);
    CHECK_EQ(sample.outcome, FA2I_OUTCOME_HANG);
    CHECK_EQ(failure.blame, FA2I_BLAME_SLOW);
    fa2i_worker_destroy(worker);
}

/* The time limit is 50 times the model's or the best kernel's time, and at least seconds. */
static void test_patience(void)
{
    fa2i_worker *worker = start();
    CHECK_EQ(fa2i_worker_case(worker, &small), FA2_OK);
    CHECK(fa2i_worker_patience_s(worker, 2, 1, 0) == 2);
    CHECK(fabs(fa2i_worker_patience_s(worker, 2, 10, 1e6) - 500) < 1e-6);
    fa2i_worker_expect(worker, 2e6);
    CHECK(fabs(fa2i_worker_patience_s(worker, 2, 1, 1e6) - 100) < 1e-6);
    CHECK_EQ(fa2i_worker_case(worker, &small), FA2_OK);
    CHECK(fa2i_worker_patience_s(worker, 2, 1, 0) == 2);
    fa2i_worker_destroy(worker);
}

/* After stop is set, no kernel gets an outcome. */
static void test_no_judgement(void)
{
    fa2i_worker *worker = start();
    fa2i_failure failure = {0};
    CHECK_EQ(fa2i_worker_case(worker, &small), FA2_OK);
    stop = 1;
    CHECK_EQ(run_small(worker, DIES, &failure), FA2_OK);
    stop = 0;
    CHECK(failure.outcome != FA2I_OUTCOME_OK);
    CHECK_EQ(failure.blame, FA2I_BLAME_STOP);
    fa2i_worker_destroy(worker);
}

/* A kernel that the driver refuses is at fault only if the driver accepts others. */
static void test_refused_images(void)
{
    fa2i_worker *worker = start();
    fa2i_failure failure = {0};
    fa2i_expected e = {0};
    CHECK_EQ(fa2i_expected_all(&small, 1, &e), FA2_OK);
    CHECK_EQ(fa2i_worker_case(worker, &small), FA2_OK);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(run_small(worker, DAMAGED, &failure), FA2_OK);
        CHECK_EQ(failure.outcome, FA2I_OUTCOME_LAUNCH_ERROR);
        CHECK_EQ(failure.blame, i == 0 ? FA2I_BLAME_IMAGE : FA2I_BLAME_KERNEL);
        CHECK_EQ(check_kernel(worker, GOOD, &e).outcome, FA2I_OUTCOME_OK);
    }
    CHECK_EQ(run_small(worker, NEWER, &failure), FA2_E_CUDA);
    CHECK_CONTAINS(fa2_last_message(), "the driver does not take the code of this NVRTC");
    fa2i_expected_done(&e);
    fa2i_worker_destroy(worker);
}

/* Device memory runs out in any driver call. This is never a verdict on a kernel, except that the reason of a refused
 * launch stays unknown. */
static void test_no_memory(void)
{
    for (int nth = 1; nth < 70; nth += 3) {
        char text[16];
        fa2i_worker *worker = NULL;
        fa2i_failure failure = {0};
        snprintf(text, sizeof text, "%d", nth);
        setenv("FA2_TEST_NO_MEMORY_AT", text, 1);
        fa2_status st = fa2i_worker_create(0, false, kernel_of, kernels, &stop, &worker);
        if (st == FA2_OK)
            st = fa2i_worker_case(worker, &small);
        if (st == FA2_OK)
            st = run_small(worker, GOOD, &failure);
        CHECK(st == FA2_OK || st == FA2_E_CUDA);
        if (failure.outcome != FA2I_OUTCOME_OK && st == FA2_OK)
            CHECK_CONTAINS(failure.detail, "cuLaunchKernel");
        fa2i_worker_destroy(worker);
    }
    unsetenv("FA2_TEST_NO_MEMORY_AT");
}

/* A new process that cannot open the device gets no other request. */
static void test_reopen(void)
{
    fa2i_worker *worker = start();
    fa2i_failure failure = {0};
    fa2i_expected e = {0};
    CHECK_EQ(fa2i_expected_all(&small, 1, &e), FA2_OK);
    CHECK_EQ(fa2i_worker_case(worker, &small), FA2_OK);
    setenv("FA2_TEST_NO_MEMORY_AT", "3", 1);
    CHECK_EQ(run_small(worker, DIES, &failure), FA2_E_CUDA);
    CHECK_CONTAINS(fa2_last_message(), "cannot use device 0");
    unsetenv("FA2_TEST_NO_MEMORY_AT");
    CHECK_EQ(check_kernel(worker, GOOD, &e).outcome, FA2I_OUTCOME_OK);
    fa2i_expected_done(&e);
    fa2i_worker_destroy(worker);
}

/* A batch in which contender 1 is bad. All samples of the others are taken, in any number of processes. */
static void test_bad_sample(uint32_t bad, fa2i_outcome outcome, int launches)
{
    enum { SAMPLES = 12 };
    fa2i_worker *worker = start();
    const uint32_t ids[3] = {GOOD, bad, GOOD_TOO};
    fa2i_failure failures[3] = {{0}};
    fa2i_sample samples[SAMPLES] = {{0}};
    for (uint32_t i = 0; i < SAMPLES; i++)
        samples[i].contender = i % 3;
    CHECK_EQ(fa2i_worker_case(worker, &small), FA2_OK);
    CHECK_EQ(fa2i_worker_sample(worker, samples, SAMPLES, ids, launches, 10, failures), FA2_OK);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        CHECK(samples[i].taken);
        CHECK_EQ(samples[i].outcome, i % 3 == 1 ? outcome : FA2I_OUTCOME_OK);
        CHECK(i % 3 == 1 || (samples[i].us > 2 && samples[i].us < 7));
    }
    CHECK_EQ(failures[1].outcome, outcome);
    CHECK_EQ(failures[0].outcome, FA2I_OUTCOME_OK);
    fa2i_worker_destroy(worker);
}

static void test_stop(void)
{
    fa2i_worker *worker = start();
    const uint32_t id = GOOD;
    fa2i_failure failure = {0};
    fa2i_sample sample = {0};
    CHECK_EQ(fa2i_worker_case(worker, &small), FA2_OK);
    stop = 1;
    CHECK_EQ(fa2i_worker_sample(worker, &sample, 1, &id, 1, 0, &failure), FA2_OK);
    CHECK(!sample.taken);
    stop = 0;
    CHECK_EQ(fa2i_worker_sample(worker, &sample, 1, &id, 1, 0, &failure), FA2_OK);
    CHECK(sample.taken);
    fa2i_worker_destroy(worker);
}

/* A case too large for the fake card's memory. The worker is usable for the next case. */
static void test_memory(void)
{
    fa2i_worker *worker = start();
    fa2i_case large = small;
    fa2i_expected e = {0};
    large.problem.batch = 1 << 20;
    large.problem.seq_q = large.problem.seq_k = 1 << 12;
    CHECK_EQ(fa2i_worker_case(worker, &large), FA2_E_CUDA);
    CHECK_CONTAINS(fa2_last_message(), "MiB of device memory");
    CHECK_CONTAINS(fa2_last_message(), "are free");
    CHECK_EQ(fa2i_expected_all(&small, 1, &e), FA2_OK);
    CHECK_EQ(fa2i_worker_case(worker, &small), FA2_OK);
    CHECK_EQ(check_kernel(worker, GOOD, &e).outcome, FA2I_OUTCOME_OK);
    fa2i_expected_done(&e);
    fa2i_worker_destroy(worker);
}

static void test_no_device(void)
{
    fa2i_worker *worker = NULL;
    CHECK(fa2i_worker_create(3, false, kernel_of, kernels, &stop, &worker) != FA2_OK);
    CHECK(worker == NULL);
    CHECK_CONTAINS(fa2_last_message(), "device 3");
}

/* Moves a pipe away from the two descriptors that the worker expects, and closes it on exec. */
static void high_ends(int ends[2])
{
    for (int i = 0; i < 2; i++) {
        int low = ends[i];
        ends[i] = fcntl(low, F_DUPFD_CLOEXEC, 10);
        close(low);
    }
}

/* A worker whose requests end exits by itself and releases everything. Otherwise main returns 99. */
static void test_clean_exit(void)
{
    int to[2], from[2], status = -1;
    pid_t pid;
    char *argv[] = {"test_worker", "worker", NULL};
    fa2i_message requests[2] = {{.request = FA2I_REQUEST_OPEN}, {.request = FA2I_REQUEST_CASE, .bytes = sizeof small}};
    posix_spawn_file_actions_t actions;
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    high_ends(to);
    high_ends(from);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], FA2I_WORKER_FD_IN);
    posix_spawn_file_actions_adddup2(&actions, from[1], FA2I_WORKER_FD_OUT);
    CHECK_EQ(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(from[1]);
    for (int i = 0; i < 2; i++) {
        fa2i_message answer = {0};
        CHECK_EQ(fa2i_pipe_send(to[1], &requests[i], &small), FA2I_PIPE_OK);
        CHECK_EQ(fa2i_pipe_read(from[0], &answer, sizeof answer, 0), FA2I_PIPE_OK);
        CHECK_EQ(answer.state, FA2I_ANSWER_OK);
        CHECK_EQ(answer.request, requests[i].request);
        kill(pid, SIGTERM); /* as a signal to the whole process group, which the worker must ignore */
        kill(pid, SIGHUP);
    }
    close(to[1]);
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    close(to[0]);
    close(from[0]);
}

/* A parent is killed while its worker's kernel spins. Every living process holds the write end of a pipe, so the pipe
 * ends when the last of them is gone. */
static void test_orphan(void)
{
    int ends[2];
    char byte;
    pid_t parent;
    char *argv[] = {"test_worker", "orphan", NULL};
    CHECK_EQ(pipe(ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    CHECK_EQ(posix_spawn(&parent, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    close(ends[1]);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL); /* until the kernel spins */
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    CHECK_EQ(read(ends[0], &byte, 1), 0); /* the kernel would spin for days */
    close(ends[0]);
}

static int run_orphan(void)
{
    fa2i_worker *worker = start();
    const uint32_t id = HANG;
    fa2i_failure failure = {0};
    fa2i_sample sample = {0};
    fa2i_worker_case(worker, &small);
    fa2i_worker_sample(worker, &sample, 1, &id, 1, 1e12, &failure);
    return 1; /* not reached */
}

int main(int argc, char **argv)
{
    fake_install();
    fake.on_launch = attention_on_launch;
    make_kernels();
    if (argc > 1 && strcmp(argv[1], "worker") == 0) {
        if (getenv("FA2_TEST_NO_MEMORY_AT") != NULL)
            fake_fail_driver(atol(getenv("FA2_TEST_NO_MEMORY_AT")), CUDA_ERROR_OUT_OF_MEMORY);
        int status = fa2i_cmd_worker(argc - 1, argv + 1);
        return fake_live() == 0 ? status : 99;
    }
    if (argc > 1 && strcmp(argv[1], "orphan") == 0)
        return run_orphan();
    test_outcomes();
    test_once(KILLED);
    test_once(LATE);
    test_silence();
    test_patience();
    test_no_judgement();
    test_refused_images();
    test_no_memory();
    test_reopen();
    test_bad_sample(GOOD, FA2I_OUTCOME_OK, 1);
    test_bad_sample(GOOD, FA2I_OUTCOME_OK, 20);
    test_bad_sample(FAULT, FA2I_OUTCOME_FAULT, 1);
    test_bad_sample(HANG, FA2I_OUTCOME_HANG, 1);
    test_bad_sample(DIES, FA2I_OUTCOME_FAULT, 1);
    test_bad_sample(TOO_BIG, FA2I_OUTCOME_LAUNCH_ERROR, 20);
    test_stop();
    test_memory();
    test_no_device();
    test_clean_exit();
    test_orphan();
    for (int i = 0; i < KERNELS; i++)
        fa2i_blob_done(&kernels[i].image);
    return check_done();
}
