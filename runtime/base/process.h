/*
 * Counts forks of the process. CUDA does not survive a fork, and a lock that another thread holds at that time stays
 * held in the child for ever. So the child leaves alone everything that its parent made.
 *
 * Thread-safe. A question costs a look at a number; getpid would be a system call.
 */
#ifndef FA2I_BASE_PROCESS_H
#define FA2I_BASE_PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include "fa2.h"

/* How many forks lie between the first process that used fa2 and this one. */
extern atomic_uint fa2i_forks;

/* Count forks from now on. *ret_forks: how many there were. FA2_E_MEMORY. */
fa2_status fa2i_process_watch(unsigned *ret_forks);

/* Does something that was made after so many forks belong to another process? */
static inline bool fa2i_is_forked(unsigned forks)
{
    return atomic_load_explicit(&fa2i_forks, memory_order_relaxed) != forks;
}

#endif
