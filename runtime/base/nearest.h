/*
 * Finds the known name that an unknown one probably meant. It is equal except for case, begins with the unknown one
 * (three letters or more, dashes apart), or differs in few letters: at most one in three, and an exchange of two
 * neighbours counts as one. Pure.
 */
#ifndef FA2I_BASE_NEAREST_H
#define FA2I_BASE_NEAREST_H

#include <stddef.h>

/* Zeroed: no name is near. */
typedef struct fa2i_nearest {
    const char *name; /* the suggestion; borrowed; NULL: no name is near */
    size_t distance;
} fa2i_nearest;

/* Takes `name` if the text, of this length, is nearer to `spelling`, one of its spellings, than to all that were tried
 * before. */
void fa2i_nearest_try(fa2i_nearest *nearest, const char *text, size_t bytes, const char *spelling, const char *name);

#endif
