#include "tuner/worker/watch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "runtime/base/status.h"
#include "tuner/worker/protocol.h"

#define TICK_NS 20000000L

/* Reports that the device is late, and ends the process. The caller holds the lock, so the thread that waits for the
 * device sends nothing more. */
static _Noreturn void give_up(const fa2i_watch *watch)
{
    char text[64];
    snprintf(text, sizeof text, "not finished after %.1f s", watch->seconds);
    fa2i_message late = {.state = FA2I_ANSWER_LATE, .bytes = strlen(text)};
    (void)fa2i_pipe_send(watch->pipe, &late, text);
    _exit(1);
}

static void *count(void *user)
{
    fa2i_watch *watch = user;
    pthread_mutex_lock(&watch->lock);
    for (;;) {
        while (watch->left == 0)
            pthread_cond_wait(&watch->begun, &watch->lock);
        pthread_mutex_unlock(&watch->lock);
        (void)nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
        pthread_mutex_lock(&watch->lock);
        if (watch->left > 0 && --watch->left == 0)
            give_up(watch);
    }
    return NULL;
}

fa2_status fa2i_watch_start(fa2i_watch *watch, int pipe)
{
    pthread_t thread;
    *watch = (fa2i_watch){.pipe = pipe};
    pthread_mutex_init(&watch->lock, NULL);
    pthread_cond_init(&watch->begun, NULL);
    const int error = pthread_create(&thread, NULL, count, watch);
    if (error != 0)
        return fa2i_fail(FA2_E_IO, "cannot start a thread: %s", strerror(error));
    pthread_detach(thread);
    return FA2_OK;
}

/* Adds one tick, because a tick that has already begun is counted in full. */
void fa2i_watch_begin(fa2i_watch *watch, double seconds)
{
    if (watch == NULL || seconds <= 0)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->seconds = seconds;
    watch->left = 1 + (long)fmin(ceil(seconds * 1e9 / TICK_NS), 1e9);
    pthread_cond_signal(&watch->begun);
    pthread_mutex_unlock(&watch->lock);
}

void fa2i_watch_end(fa2i_watch *watch)
{
    if (watch == NULL)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->left = 0;
    pthread_mutex_unlock(&watch->lock);
}
