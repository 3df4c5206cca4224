/*
 * Turns on a device: which process of this machine measures on it. A turn is a name in the
 * system's abstract namespace of sockets (Linux), so one process has it, it ends with the process
 * however that ends, and nothing lies around. It reaches as far as the network namespace:
 * containers do not see each other's. Where there are no such names everyone has every turn. Not
 * thread-safe.
 */
#ifndef FA2I_TURN_H
#define FA2I_TURN_H

#include <stdbool.h>
#include <sys/types.h>

enum { FA2I_TURN_CHARS = 80 };

/* A turn that is not held is FA2I_TURN_NONE. */
typedef struct fa2i_turn {
    int socket; /* + 1 */
} fa2i_turn;
#define FA2I_TURN_NONE ((fa2i_turn){0})

/* Take it, without waiting; false: another process has it. */
bool fa2i_turn_take(const char *name, fa2i_turn *ret_turn);
void fa2i_turn_give_back(fa2i_turn *turn); /* FA2I_TURN_NONE is fine */

/* The process that has it; 0: nobody, or it cannot be told. */
pid_t fa2i_turn_holder(const char *name);

#endif
