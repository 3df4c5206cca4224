/*
 * Limits the time that the device gets for its work. While the worker process waits for the device, another thread
 * sleeps in ticks and counts them. A sleep may take longer than a tick, but never less. So the device had at least the
 * counted time, however busy the host is. A software device interprets a launch before the wait, so its time is not
 * counted. It has its own limit of instructions.
 *
 * When all ticks are used up, the thread sends FA2I_ANSWER_LATE to the parent, in place of the missing answer, and ends
 * the process. Only one thread of the process waits for the device.
 */
#pragma once

#include <pthread.h>
#include "fa2.h"

typedef struct fa2i_watch {
    pthread_mutex_t lock; /* for the members below, and for the pipe while ticks are counted */
    pthread_cond_t begun;
    long left;      /* ticks; 0: no wait is counted */
    double seconds; /* limit of the present wait */
    int pipe;       /* to the parent */
} fa2i_watch;

/* Starts to watch, until the process ends. Returns FA2_E_IO if no thread can be created. */
fa2_status fa2i_watch_start(fa2i_watch *watch, int pipe);

/* Call these around a wait for the device. Without a watch (NULL), or with seconds <= 0, the wait has no limit. */
void fa2i_watch_begin(fa2i_watch *watch, double seconds);
void fa2i_watch_end(fa2i_watch *watch);
