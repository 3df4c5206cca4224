/*
 * `fa2-tune --device all`: a tuner for each device of the machine, all at once. What they share
 * (compiling; of equal cards verification and problems too) they claim in the database:
 * cache/claims.h.
 */
#ifndef FA2I_ALL_DEVICES_H
#define FA2I_ALL_DEVICES_H

#include <signal.h>
#include "tuner/commands/commands.h"

/* argv: of the command tune, with --device all in it; options: what it says, and of a program, which is not run here,
 * what it asked for. What the tuners print is passed on line by line, with the device in front; with --json, as one
 * object {"devices":[...]}. *ret_status: the worst of theirs. FA2_E_NO_DRIVER, FA2_E_NO_DEVICE: none was started.
 * FA2_E_IO, FA2_E_MEMORY: one could not be; those before it have run to their end. */
fa2_status fa2i_all_devices_tune(int argc, char **argv, const fa2i_options *options,
                                 const volatile sig_atomic_t *stop, int *ret_status);

#endif
