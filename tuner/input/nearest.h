/*
 * Which known name was probably meant by one that is not known: the same but for case, or off by few letters (one in
 * three at most, an exchange of two neighbours counting as one). Pure.
 */
#ifndef FA2I_NEAREST_H
#define FA2I_NEAREST_H

#include "tuner/input/problem_text.h"

/* Zeroed: nothing is near. */
typedef struct fa2i_nearest {
    const char *name; /* what to write instead; borrowed; NULL: nothing is near */
    size_t distance;
} fa2i_nearest;

/* Take `name`, if the text is nearer to `spelling`, one of the ways to say it, than to what was tried before. */
void fa2i_nearest_try(fa2i_nearest *nearest, fa2i_span text, const char *spelling, const char *name);

#endif
