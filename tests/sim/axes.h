/*
 * The axis values of variants in a sample: "family axis=value", and for tiles "family br=16 bc=64".
 *
 * Zero it first. It holds at most AXES_MAX values; more of them end the program.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { AXES_MAX = 1024, AXES_CHARS = 80 };

typedef struct axes {
    struct {
        char text[AXES_CHARS];
        bool run;
    } values[AXES_MAX];
    size_t count;
} axes;

/* Records the values of a variant's text. run: the variant is run. Returns how many of them no variant had that was run
 * before. */
size_t axes_note(axes *a, const char *variant, bool run);

/* Records the values of all variants, text(user, i) for i < count. Chooses more variants until each value is in one
 * that is run, those with the most new values first. wanted: the variants to run, in and out. */
void axes_cover(axes *a, const char *(*text)(const void *user, size_t i), const void *user, size_t count,
                bool wanted[]);

/* Returns how many recorded values no run variant has. Prints each. */
size_t axes_missing(const axes *a);
