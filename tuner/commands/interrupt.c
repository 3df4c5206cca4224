/*
 * The only globals that change, because a signal handler can write nowhere else. The deadline is a timer, so that it
 * also reaches threads that only look at a flag.
 *
 * The same timer ends a process that does not look at the flag. Some C code may not return for a long time: a script's
 * pattern that takes exponential time, or a driver that hangs.
 */
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include "tuner/commands/commands.h"
#include "tuner/commands/interrupt.h"

enum { GRACE_S = 10 };

static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t spent; /* the time is up, or there was a signal */

static void on_alarm(int number)
{
    static const char said[] = "\nfa2-tune: interrupted, but did not end in time; what was reported as done is kept\n";
    (void)number;
    spent = 1;
    if (!interrupted)
        return;
    (void)!write(STDERR_FILENO, said, sizeof said - 1);
    _exit(FA2I_EXIT_INTERRUPTED);
}

static void watch_alarm(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
}

static void on_signal(int number)
{
    (void)number;
    interrupted = spent = 1;
    watch_alarm();
    alarm(GRACE_S);
}

const volatile sig_atomic_t *fa2i_interrupt_watch(void)
{
    struct sigaction action, callers;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    /* Catches one signal only: a second one has its usual effect. */
    action.sa_flags = (int)(SA_RESETHAND | SA_RESTART);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, NULL, &callers);
    if (callers.sa_handler != SIG_IGN) /* otherwise nohup wants it ignored */
        sigaction(SIGHUP, &action, NULL);
    return &interrupted;
}

/* Like on_signal, but only for signals that kill() sent, not the terminal. */
static void on_sent_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code <= 0)
        on_signal(number);
}

void fa2i_interrupt_leave_to_program(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_sent_signal;
    action.sa_flags = (int)(SA_SIGINFO | SA_RESTART);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool fa2i_interrupted(void)
{
    return interrupted != 0;
}

const volatile sig_atomic_t *fa2i_interrupt_deadline(double seconds)
{
    const struct itimerval none = {.it_value.tv_sec = 0};
    struct itimerval timer = {.it_value.tv_sec = (time_t)(seconds < 1e9 ? seconds : 1e9)};
    if (interrupted) /* the timer now limits the time for the end */
        return &spent;
    watch_alarm();
    if (seconds < 1e9)
        timer.it_value.tv_usec = (suseconds_t)((seconds - (double)timer.it_value.tv_sec) * 1e6);
    if (seconds > 0 && timer.it_value.tv_sec == 0 && timer.it_value.tv_usec == 0)
        timer.it_value.tv_usec = 1;      /* 0 would mean never */
    setitimer(ITIMER_REAL, &none, NULL); /* stops the timer of an earlier call */
    spent = interrupted;
    setitimer(ITIMER_REAL, &timer, NULL);
    return &spent;
}
