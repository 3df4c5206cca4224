/*
 * - Counts move from `counted` to `writing`, and leave `writing` once they are in the file. If the file cannot be
 *   written for long, `writing` stops growing at WRITING_MOST, and `counted` fills up.
 * - The thread writes, and so does closing, which first waits for the thread. Both write without holding `mutex`, so
 *   calls never wait for a file. The thread blocks all signals, because they are meant for the program.
 * - Many programs end without destroying their contexts. So all captures of a process are in a list, and the end of the
 *   process (or unloading the library) closes those that are left. This list is the only state outside of contexts.
 * - A forked process starts with an empty list: it has no such thread, and its parent writes the counts it inherited.
 */
#define _XOPEN_SOURCE 700 /* realpath */
#include "runtime/plan/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "runtime/base/alloc.h"
#include "runtime/base/environment.h"
#include "runtime/plan/call_table.h"
#include "runtime/plan/capture_file.h"

enum { PERIOD_S = 2, WRITING_MOST = 2 * FA2I_CALL_TABLE_MOST };

struct fa2i_capture {
    char *path; /* absolute, because programs change their working directory */
    const fa2i_counters *counters;
    uint64_t written[FA2I_COUNTERS]; /* what of the counters is in FILE.counters; as `writing` */
    pthread_mutex_t mutex;
    pthread_cond_t waking;
    bool stopped;
    bool full; /* `counted` has no room: the thread writes at once */
    bool has_thread;
    pthread_t thread;
    fa2i_call_counts writing; /* used only by the one that writes, without the mutex */
    fa2i_call_table counted;
    bool failed, told;
    char message[FA2I_MESSAGE_BYTES]; /* the last failure */
    fa2i_capture *next;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static fa2i_capture *list;

/* ---- writing ---- */

/* Moves the counts to `writing`. If there is no memory for one, it goes back to `counted` for the next time. */
static void gather(fa2i_capture *capture)
{
    pthread_mutex_lock(&capture->mutex);
    fa2i_call_table counted = capture->counted;
    capture->counted = (fa2i_call_table){.places = NULL};
    pthread_mutex_unlock(&capture->mutex);
    for (size_t i = 0; i < counted.place_count; i++) {
        const fa2i_called *called = &counted.places[i];
        if (called->calls == 0 || fa2i_call_counts_add(&capture->writing, &called->problem, called->calls) == FA2_OK)
            continue;
        pthread_mutex_lock(&capture->mutex);
        (void)fa2i_call_table_add(&capture->counted, &called->problem, called->calls);
        pthread_mutex_unlock(&capture->mutex);
    }
    fa2i_call_table_done(&counted);
}

static fa2_status write_calls(fa2i_capture *capture)
{
    if (capture->writing.count <= WRITING_MOST - FA2I_CALL_TABLE_MOST)
        gather(capture);
    if (capture->writing.count == 0)
        return FA2_OK;
    const fa2_status st = fa2i_capture_file_add(capture->path, &capture->writing);
    if (st == FA2_OK)
        fa2i_call_counts_done(&capture->writing);
    return st;
}

/* Adds to FILE.counters what was counted since the last time. */
static fa2_status write_counters(fa2i_capture *capture)
{
    uint64_t values[FA2I_COUNTERS], more[FA2I_COUNTERS], any = 0;
    fa2i_counters_read(capture->counters, values);
    for (int i = 0; i < FA2I_COUNTERS; i++)
        any |= more[i] = values[i] - capture->written[i];
    const fa2_status st = any == 0 ? FA2_OK : fa2i_capture_file_add_counters(capture->path, more);
    if (st == FA2_OK)
        memcpy(capture->written, values, sizeof values);
    return st;
}

/* Only one thread at a time may call this. It does not hold the mutex. */
static fa2_status write_counts(fa2i_capture *capture)
{
    fa2_status st = write_calls(capture);
    if (st == FA2_OK)
        st = write_counters(capture);
    pthread_mutex_lock(&capture->mutex);
    if (st != FA2_OK)
        snprintf(capture->message, sizeof capture->message, "%s", fa2_last_message());
    capture->failed = st != FA2_OK;
    capture->told = capture->told && capture->failed;
    pthread_mutex_unlock(&capture->mutex);
    return st;
}

static void *write_at_times(void *user)
{
    fa2i_capture *capture = user;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&capture->mutex);
    while (!capture->stopped) {
        next.tv_sec += PERIOD_S;
        while (!capture->stopped && !capture->full &&
               pthread_cond_timedwait(&capture->waking, &capture->mutex, &next) != ETIMEDOUT)
            continue;
        if (!capture->stopped) {
            capture->full = false;
            pthread_mutex_unlock(&capture->mutex);
            (void)write_counts(capture);
            pthread_mutex_lock(&capture->mutex);
        }
        clock_gettime(CLOCK_MONOTONIC, &next);
    }
    pthread_mutex_unlock(&capture->mutex);
    return NULL;
}

/* If there is no thread, closing writes all counts. */
static void start_thread(fa2i_capture *capture)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    capture->has_thread = pthread_create(&capture->thread, NULL, write_at_times, capture) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Stops the thread and writes the remaining counts. */
static fa2_status stop(fa2i_capture *capture)
{
    pthread_mutex_lock(&capture->mutex);
    const bool join = capture->has_thread && !capture->stopped;
    capture->stopped = true;
    pthread_cond_signal(&capture->waking);
    pthread_mutex_unlock(&capture->mutex);
    if (join)
        pthread_join(capture->thread, NULL);
    return write_counts(capture);
}

/* ---- the end of the process ---- */

static void stop_all(void)
{
    pthread_mutex_lock(&list_mutex);
    for (fa2i_capture *capture = list; capture != NULL; capture = capture->next)
        (void)stop(capture);
    pthread_mutex_unlock(&list_mutex);
}

static void forget_all(void)
{
    pthread_mutex_init(&list_mutex, NULL); /* the thread that held it exists only in the parent */
    list = NULL;
}

static void watch_the_end(void)
{
    (void)pthread_atfork(NULL, NULL, forget_all);
    (void)atexit(stop_all);
}

static void enlist(fa2i_capture *capture)
{
    pthread_once(&once, watch_the_end);
    pthread_mutex_lock(&list_mutex);
    capture->next = list;
    list = capture;
    pthread_mutex_unlock(&list_mutex);
}

static void delist(const fa2i_capture *capture)
{
    pthread_mutex_lock(&list_mutex);
    fa2i_capture **at = &list;
    while (*at != NULL && *at != capture)
        at = &(*at)->next;
    if (*at != NULL)
        *at = capture->next;
    pthread_mutex_unlock(&list_mutex);
}

/* ---- opening, counting, closing ---- */

static void free_capture(fa2i_capture *capture)
{
    pthread_cond_destroy(&capture->waking);
    pthread_mutex_destroy(&capture->mutex);
    fa2i_call_counts_done(&capture->writing);
    fa2i_call_table_done(&capture->counted);
    free(capture->path); /* allocated by realpath */
    fa2i_free(capture);
}

/* Finds the file's real path, with all links resolved, and creates the file if it is missing. The caller frees
 * *ret_real with free(). */
static fa2_status find_file(const char *path, char **ret_real)
{
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (file >= 0) {
        close(file);
        *ret_real = realpath(path, NULL);
    }
    return *ret_real != NULL ? FA2_OK
                             : fa2i_fail(FA2_E_IO, "FA2_CAPTURE=%s: it cannot be written (%s)", path, strerror(errno));
}

fa2_status fa2i_capture_open(const fa2i_counters *counters, fa2i_capture **ret_capture)
{
    fa2_status st = FA2_OK;
    const char *path = fa2i_environment("FA2_CAPTURE");
    const fa2i_call_counts none = {0};
    char *real = NULL;
    pthread_condattr_t attributes;
    *ret_capture = NULL;
    if (path == NULL)
        return FA2_OK;
    FA2_TRY(find_file(path, &real));
    FA2_TRY(fa2i_capture_file_add(real, &none)); /* reports an unusable file early */
    fa2i_capture *capture = NULL;
    FA2_TRY(FA2I_NEW(capture, 1));
    capture->path = real;
    capture->counters = counters;
    real = NULL; /* ownership has moved to the capture */
    pthread_mutex_init(&capture->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&capture->waking, &attributes);
    pthread_condattr_destroy(&attributes);
    start_thread(capture);
    enlist(capture);
    *ret_capture = capture;
done:
    free(real);
    return st;
}

void fa2i_capture_add(fa2i_capture *capture, const fa2_problem *problem)
{
    pthread_mutex_lock(&capture->mutex);
    if (!fa2i_call_table_add(&capture->counted, problem, 1) && !capture->full && !capture->failed) {
        capture->full = true;
        pthread_cond_signal(&capture->waking);
    }
    pthread_mutex_unlock(&capture->mutex);
}

fa2_status fa2i_capture_trouble(fa2i_capture *capture)
{
    char message[FA2I_MESSAGE_BYTES];
    pthread_mutex_lock(&capture->mutex);
    const bool news = capture->failed && !capture->told;
    capture->told = capture->failed;
    memcpy(message, capture->message, sizeof message);
    pthread_mutex_unlock(&capture->mutex);
    return news ? fa2i_fail(FA2_E_IO, "%s; the counts are kept until it can be", message) : FA2_OK;
}

fa2_status fa2i_capture_close(fa2i_capture *capture)
{
    if (capture == NULL)
        return FA2_OK;
    delist(capture);
    const fa2_status st = stop(capture);
    free_capture(capture);
    return st;
}
