/*
 * The only global that changes: a signal handler has no other place to write to.
 */
#include <string.h>
#include "tuner/interrupt.h"

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

const volatile sig_atomic_t *fa2i_interrupt_watch(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    /* One signal only: the second one acts as if nobody watched. */
    action.sa_flags = (int)(SA_RESETHAND | SA_RESTART);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &interrupted;
}
