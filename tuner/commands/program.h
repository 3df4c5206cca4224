/*
 * `fa2-tune --device 0 -- PROGRAM ARGS...`: run a program, and find out which problems it calls
 * (FA2_CAPTURE).
 */
#ifndef FA2I_PROGRAM_H
#define FA2I_PROGRAM_H

#include <signal.h>
#include "tuner/input/shapes.h"

/* Run argv[0], found as a shell finds it, with the environment and the standard streams of this
 * process (to_stderr: what it prints goes to standard error), and add what it asked for to shapes.
 * Where FA2_CAPTURE is set its file is used, and stays; what it said before counts too. The program
 * uses this database: FA2_DB is its path there, from the root, as FA2_CAPTURE's is, for it may work in another folder.
 * NULL: what FA2_DB names here already, or the default one.
 *
 * Ctrl-C is for the program, whose end is waited for; when *stop becomes nonzero (SIGTERM, SIGHUP)
 * the program gets SIGTERM, and nothing is added. *ret_failed: it ended with another status than
 * 0, which was said on standard error. FA2_E_INVALID: it could not be started, or the capture's
 * file is no good; FA2_E_IO: there can be no capture; FA2_E_NOT_FOUND: it never called fa2, and
 * shapes are empty. */
fa2_status fa2i_program_run(char **argv, const char *database, bool to_stderr, const volatile sig_atomic_t *stop,
                            fa2i_shapes *shapes, bool *ret_failed);

#endif
