/*
 * Finds the known name that an unknown one probably meant. It is equal except for case, or differs in few letters: at
 * most one in three, and an exchange of two neighbours counts as one. Pure.
 */
#ifndef FA2I_NEAREST_H
#define FA2I_NEAREST_H

#include "tuner/input/problem_text.h"

/* Zeroed: no name is near. */
typedef struct fa2i_nearest {
    const char *name; /* the suggestion; borrowed; NULL: no name is near */
    size_t distance;
} fa2i_nearest;

/* Takes `name` if text is nearer to `spelling`, one of its spellings, than to all that were tried before. */
void fa2i_nearest_try(fa2i_nearest *nearest, fa2i_span text, const char *spelling, const char *name);

#endif
