/*
 * posix_spawn with two pipes.
 */
#include "tuner/worker/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tuner/worker/protocol.h"

extern char **environ;

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void fa2i_process_kill(fa2i_process *process, char *how, size_t how_bytes)
{
    int status = 0;
    close_fd(&process->to);
    close_fd(&process->from);
    if (process->pid > 0) {
        kill(process->pid, SIGKILL);
        while (waitpid(process->pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    if (how != NULL && WIFSIGNALED(status))
        snprintf(how, how_bytes, "the worker process died of signal %d", WTERMSIG(status));
    else if (how != NULL)
        snprintf(how, how_bytes, "the worker process ended with status %d", WEXITSTATUS(status));
    *process = FA2I_PROCESS_NONE;
}

/* Makes a pipe whose ends lie above the two descriptors that the worker uses, and close on exec. */
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

/* Signals to the whole process group must not reach the worker. It ignores them as soon as it can. Until then they are
 * blocked. */
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

fa2_status fa2i_process_start(fa2i_process *ret_process)
{
    fa2_status st = FA2_OK;
    fa2i_process process = FA2I_PROCESS_NONE;
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
    int error = posix_spawn(&process.pid, "/proc/self/exe", &actions, &attributes, argv, environ);
    if (error != 0)
        FA2_TRY(fa2i_fail(FA2_E_IO, "cannot start the worker process: %s", strerror(error)));
    process.to = request[1];
    process.from = answer[0];
    request[1] = answer[0] = -1; /* *ret_process owns them now */
    *ret_process = process;
done:
    for (int i = 0; i < 2; i++) {
        close_fd(&request[i]);
        close_fd(&answer[i]);
    }
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return st;
}
