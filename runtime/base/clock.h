/*
 * Clocks for waits and limits. Neither is ever set. Thread-safe.
 */
#ifndef FA2I_BASE_CLOCK_H
#define FA2I_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define FA2I_SECOND_NS INT64_C(1000000000)

/* Nanoseconds since some moment. */
static inline int64_t fa2i_clock_ns(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * FA2I_SECOND_NS + now.tv_nsec;
}

/* Processor seconds of this thread: they do not grow while it waits, for instance because the machine is busy. */
static inline double fa2i_clock_thread_s(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
