/*
 * Turns on a device: they decide which process of this machine measures on it. A turn is a name in Linux's abstract
 * namespace of sockets. So only one process has it, it ends with the process in any case, and no file stays behind. It
 * is valid within a network namespace: containers do not see each other's turns. On systems without such names every
 * process gets every turn. Not thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum { FA2I_TURN_CHARS = 80 };

/* A turn that is not held is FA2I_TURN_NONE. */
typedef struct fa2i_turn {
    int socket; /* + 1 */
} fa2i_turn;
#define FA2I_TURN_NONE ((fa2i_turn){0})

/* Takes a turn without waiting. Returns false if another process has it. */
bool fa2i_turn_take(const char *name, fa2i_turn *ret_turn);
void fa2i_turn_give_back(fa2i_turn *turn); /* accepts FA2I_TURN_NONE */

/* Returns the process that has the turn; 0 if no process has it, or it is not known. */
pid_t fa2i_turn_holder(const char *name);
