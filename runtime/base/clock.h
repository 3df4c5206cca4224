/*
 * Monotonic clocks for waits and limits. Nobody sets them. Thread-safe.
 */
#pragma once

#include <stdint.h>
#include <time.h>

#define FA2I_SECOND_NS INT64_C(1000000000)

/* Returns nanoseconds since some fixed moment. */
static inline int64_t fa2i_clock_ns(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * FA2I_SECOND_NS + now.tv_nsec;
}

/* Returns seconds since that moment. */
static inline double fa2i_now_s(void)
{
    return 1e-9 * (double)fa2i_clock_ns();
}

/* Returns the processor seconds of this thread. They do not grow while it waits, for example because the machine is
 * busy. */
static inline double fa2i_clock_thread_s(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
