/*
 * Ctrl-C, SIGTERM and SIGHUP as a flag: the command finishes the step it is in, keeps what is done,
 * and exits with FA2I_EXIT_INTERRUPTED. If that takes longer than 10 seconds the process ends where
 * it is, with the same status; a second Ctrl-C kills it at once, as usual (everything that was
 * reported as done is in the database: each write is one transaction).
 */
#ifndef FA2I_INTERRUPT_H
#define FA2I_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/* Start to watch, once per process; the flag becomes nonzero at the first signal. Borrowed for
 * ever. */
const volatile sig_atomic_t *fa2i_interrupt_watch(void);

/* While a program runs: Ctrl-C on a terminal reaches it, too, and ends it, not this process; a SIGINT that was sent to
 * this process counts as ever. fa2i_interrupt_watch ends this. */
void fa2i_interrupt_leave_to_program(void);

/* Was there a signal? false where nobody watches. */
bool fa2i_interrupted(void);

/* Another flag: it becomes nonzero after this time (0: never) or at the first signal. It is the
 * same for the whole process, and each call starts it anew. Borrowed for ever. */
const volatile sig_atomic_t *fa2i_interrupt_deadline(double seconds);

#endif
