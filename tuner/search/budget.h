/*
 * The time that a tuning has. It ends when the time is used up, or when the user stops it.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>

typedef struct fa2i_budget {
    double seconds; /* 0: no limit */
    double started_s;
    const volatile sig_atomic_t *stop;  /* nonzero once the user stops the run */
    const volatile sig_atomic_t *spent; /* nonzero once the time is used up, or the user stops */
} fa2i_budget;

static inline bool fa2i_budget_is_stopped(const fa2i_budget *budget)
{
    return *budget->stop != 0;
}

static inline bool fa2i_budget_is_spent(const fa2i_budget *budget)
{
    return *budget->spent != 0;
}
