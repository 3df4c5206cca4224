/*
 * The worker as a process of the system: this program again, called as `worker`, with a pipe each way.
 * It gets none of the signals that go to the whole process group.
 *
 * Errors: FA2_E_IO. Not thread-safe.
 */
#ifndef FA2I_PROCESS_H
#define FA2I_PROCESS_H

#include <sys/types.h>
#include "runtime/base/status.h"

typedef struct fa2i_process {
    pid_t pid;    /* 0: there is none */
    int to, from; /* pipe ends; -1: none */
} fa2i_process;

#define FA2I_PROCESS_NONE ((fa2i_process){.pid = 0, .to = -1, .from = -1})

/* Start one. On FA2_OK *ret_process is to be killed some time. */
fa2_status fa2i_process_start(fa2i_process *ret_process);

/* Kill it, wait for it (the driver may need seconds to take back what a spinning kernel held), and say
 * how it ended (how may be NULL). Afterwards it is FA2I_PROCESS_NONE, which may be killed, too. */
void fa2i_process_kill(fa2i_process *process, char *how, size_t how_bytes);

#endif
