/*
 * `fa2-tune --device 0 -- PROGRAM ARGS...`: runs a program and records which problems it calls (FA2_CAPTURE).
 */
#pragma once

#include <signal.h>
#include "tuner/input/shapes.h"

/* Runs argv[0], found as a shell finds it, and adds the problems that it called to shapes. It gets the environment and
 * the standard streams of this process. to_stderr: its output goes to standard error. If FA2_CAPTURE is set, that file
 * is used and kept, and its earlier contents count, too.
 *
 * The program uses the database at `database`; NULL: the one that FA2_DB names here, or the default one. FA2_DB and
 * FA2_CAPTURE are absolute paths for the program, because it may work in another folder.
 *
 * Ctrl-C is for the program, and this function waits for its end. When *stop becomes nonzero (SIGTERM, SIGHUP), the
 * program gets SIGTERM, and nothing is added. *ret_failed: it ended with a status other than 0, and a line on stderr
 * said so. FA2_E_INVALID: it could not be started, or the capture's file is not valid. FA2_E_IO: no capture can be
 * made. FA2_E_NOT_FOUND: it never called fa2, and shapes are empty. */
fa2_status fa2i_program_run(char **argv, const char *database, bool to_stderr, const volatile sig_atomic_t *stop,
                            fa2i_shapes *shapes, bool *ret_failed);
