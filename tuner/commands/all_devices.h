/*
 * `fa2-tune --device all`: one tuner per device of the machine, all at once. They share work through claims in the
 * database (cache/content/claims.h): compiling, and for equal cards also verification and problems.
 */
#pragma once

#include <signal.h>
#include "tuner/commands/commands.h"

/* argv: the tune command with --device all. options: its parsed options; if there was a program, it has run already,
 * and they include its problems. The tuners' output is passed on line by line, with the device in front. With --json it
 * becomes one object {"devices":[...]}. *ret_status: the worst of their exit statuses. FA2_E_NO_DRIVER,
 * FA2_E_NO_DEVICE: no tuner was started. FA2_E_IO, FA2_E_MEMORY: one could not be started; those before it have run to
 * their end. */
fa2_status fa2i_all_devices_tune(int argc, char **argv, const fa2i_options *options, const volatile sig_atomic_t *stop,
                                 int *ret_status);
