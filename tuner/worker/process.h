/*
 * Starts and ends the worker as a process: this program again, called as `worker`, with a pipe in each direction.
 * Signals to the whole process group do not affect it.
 *
 * Errors: FA2_E_IO. Not thread-safe.
 */
#pragma once

#include <sys/types.h>
#include "runtime/base/status.h"

typedef struct fa2i_process {
    pid_t pid;    /* 0: there is none */
    int to, from; /* pipe ends; -1: none */
} fa2i_process;

#define FA2I_PROCESS_NONE ((fa2i_process){.pid = 0, .to = -1, .from = -1})

/* Starts a process. On FA2_OK the caller must kill *ret_process later. */
fa2_status fa2i_process_start(fa2i_process *ret_process);

/* Kills the process, waits for its end, and says how it ended (how may be NULL). The driver may need seconds to release
 * what a spinning kernel held. Afterwards *process is FA2I_PROCESS_NONE, which may be killed again. */
void fa2i_process_kill(fa2i_process *process, char *how, size_t how_bytes);
