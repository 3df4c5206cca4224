/*
 * Counts forks of the process. CUDA does not survive a fork, and a lock that another thread holds at that time stays
 * locked in the child forever. So the child never touches what its parent made.
 *
 * Thread-safe. A check reads one number; getpid would be a system call.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include "fa2.h"

/* The number of forks between the first process that used fa2 and this one. */
extern atomic_uint fa2i_forks;

/* Counts forks from now on. *ret_forks is the number so far. Fails with FA2_E_MEMORY. */
fa2_status fa2i_process_watch(unsigned *ret_forks);

/* Returns whether another process made an object. forks: the number of forks when it was made. */
static inline bool fa2i_is_forked(unsigned forks)
{
    return atomic_load_explicit(&fa2i_forks, memory_order_relaxed) != forks;
}
