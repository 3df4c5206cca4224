/*
 * A child that was forked while another thread of its parent was in a call. Every function refuses the parent's context
 * at once with a sentence, and uses neither lock nor driver.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"
#include "fa2.h"
#include "fake_call.h"
#include "fake_cuda.h"

enum { FORKS = 200, CHILD_S = 20 /* more than any machine needs if nothing waits */ };

static fa2_context *context;
static atomic_bool ended;

static fa2_problem problem_of(int32_t seq_k)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .batch = 1,
                         .heads_q = 8,
                         .heads_kv = 8,
                         .seq_q = 1,
                         .seq_k = seq_k,
                         .head_dim = 64};
}

/* Calls with new shapes continuously, so it holds the locks of context, driver and allocator in turn. */
static void *call(void *user)
{
    int *failed = user;
    for (int32_t length = 1; !atomic_load(&ended); length = length % 100000 + 1) {
        const fa2_problem problem = problem_of(length);
        *failed += fake_call(context, &problem, 512, NULL) != FA2_OK;
    }
    return NULL;
}

static bool is_refused(fa2_status st)
{
    return st == FA2_E_INVALID && strstr(fa2_last_message(), "before this process was forked") != NULL;
}

/* Returns 0, or the number of the function that is wrong. */
static int check_child(void)
{
    const fa2_problem known = problem_of(1), unknown = problem_of(777777);
    fa2_problem backward = known;
    const fa2_backward_args args = {.struct_bytes = sizeof(fa2_backward_args), .softmax_scale = 1};
    fa2_explanation explanation = {.struct_bytes = sizeof explanation};
    size_t bytes = 0;
    backward.op = FA2_OP_BACKWARD;
    if (!is_refused(fake_call(context, &known, 512, NULL)))
        return 1;
    if (!is_refused(fake_call(context, &unknown, 512, NULL)))
        return 2;
    if (!is_refused(fa2_backward(context, &backward, &args, NULL)))
        return 3;
    if (!is_refused(fa2_prepare(context, &known)) || !is_refused(fa2_prepare(context, &unknown)))
        return 4;
    if (!is_refused(fa2_workspace_size(context, &known, &bytes)))
        return 5;
    if (!is_refused(fa2_explain(context, &known, &explanation)))
        return 6;
    if (fa2_prepare(NULL, &known) != FA2_E_INVALID || strcmp(fa2_last_message(), "context is NULL") != 0)
        return 7;
    fa2_context_destroy(context);
    return 0;
}

static void check_fork(void)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        (void)alarm(CHILD_S); /* a hang ends by a signal */
        _exit(check_child());
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

static void test_while_in_a_call(void)
{
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = ""};
    pthread_t thread;
    int failed = 0;
    setenv("FA2_SHARE", "", 1);
    fake_install();
    CHECK_EQ(fa2_context_create(&config, &context), FA2_OK);
    CHECK_EQ(pthread_create(&thread, NULL, call, &failed), 0);
    for (int i = 0; i < FORKS && check_failures == 0; i++)
        check_fork();
    atomic_store(&ended, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(failed, 0);
    fa2_context_destroy(context); /* the parent's context still works */
    CHECK_EQ(fake_live(), 0);
    fake_uninstall();
}

/* A child may have its own contexts, which its children may not use. */
static void test_own(void)
{
    const fa2_config config = {.struct_bytes = sizeof(fa2_config), .database = ""};
    const fa2_problem problem = problem_of(5);
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        fake_install();
        int failed = fa2_context_create(&config, &context) != FA2_OK;
        failed += fake_call(context, &problem, 512, NULL) != FA2_OK;
        check_fork();
        failed += fake_call(context, &problem, 512, NULL) != FA2_OK;
        fa2_context_destroy(context);
        fake_uninstall();
        _exit(failed + check_failures);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    test_while_in_a_call();
    test_own();
    return check_done();
}
