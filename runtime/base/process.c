/*
 * The fork handler belongs to the library. When the library is unloaded, the C library removes the handler.
 */
#include "runtime/base/process.h"

#include <pthread.h>
#include "runtime/base/status.h"

atomic_uint fa2i_forks;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int watching; /* 0, or the error of pthread_atfork */

static void count_fork(void)
{
    atomic_fetch_add_explicit(&fa2i_forks, 1, memory_order_relaxed);
}

static void watch(void)
{
    watching = pthread_atfork(NULL, NULL, count_fork);
}

fa2_status fa2i_process_watch(unsigned *ret_forks)
{
    pthread_once(&once, watch);
    if (watching != 0)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a fork handler");
    *ret_forks = atomic_load_explicit(&fa2i_forks, memory_order_relaxed);
    return FA2_OK;
}
