/*
 * Which axis values of variants a sample has: "family axis=value", and tiles, "family br=16 bc=64".
 *
 * Zeroed to begin with. At most AXES_MAX values; more end the program.
 */
#ifndef SIM_AXES_H
#define SIM_AXES_H

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

/* Note the values of a variant's text, which is run if `run`. How many of them were in none that was
 * run before. */
size_t axes_note(axes *a, const char *variant, bool run);

/* Note those of all variants, text(user, i) for i < count, and choose more until every value is in one
 * that is run: those with the most new values first. wanted: which are run, in and out. */
void axes_cover(axes *a, const char *(*text)(const void *user, size_t i), const void *user,
                size_t count, bool wanted[]);

/* How many noted values are in no variant that was run; each is printed. */
size_t axes_missing(const axes *a);

#endif
