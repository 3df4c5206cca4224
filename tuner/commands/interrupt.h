/*
 * Turns Ctrl-C, SIGTERM and SIGHUP into a flag. The command finishes its present step, keeps what is done, and exits
 * with FA2I_EXIT_INTERRUPTED. If that takes longer than 10 seconds, the process exits at once with the same status. A
 * second Ctrl-C kills it at once, as usual. Everything that was reported as done is in the database, because each write
 * is one transaction.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>

/* Starts to watch, once per process. The flag becomes nonzero at the first signal. It is valid for ever. */
const volatile sig_atomic_t *fa2i_interrupt_watch(void);

/* Call it while a program runs. Ctrl-C on a terminal then ends the program and not this process. A SIGINT that was sent
 * to this process still counts. fa2i_interrupt_watch ends this mode. */
void fa2i_interrupt_leave_to_program(void);

/* Says whether there was a signal; false if nothing watches. */
bool fa2i_interrupted(void);

/* Returns another flag. It becomes nonzero after this time (0: never) or at the first signal. There is one per process,
 * and each call starts it anew. It is valid for ever. */
const volatile sig_atomic_t *fa2i_interrupt_deadline(double seconds);
