#include "axes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the entry of a value. Creates it if it does not exist. */
static size_t find(axes *a, const char *text)
{
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->values[i].text, text) == 0)
            return i;
    if (a->count == AXES_MAX) {
        fprintf(stderr, "more than %d axis values\n", (int)AXES_MAX);
        exit(1);
    }
    snprintf(a->values[a->count].text, AXES_CHARS, "%s", text);
    return a->count++;
}

/* Records a value. Returns true if it was never run before. run: it is run now. */
static bool visit(axes *a, const char *text, bool run)
{
    const size_t at = find(a, text);
    const bool had = a->values[at].run;
    a->values[at].run = had || run;
    return !had;
}

size_t axes_note(axes *a, const char *variant, bool run)
{
    const int family = (int)strcspn(variant, " ");
    const char *rows = strstr(variant, " br="), *keys = strstr(variant, " bc=");
    char text[AXES_CHARS];
    size_t fresh = 0;
    if (rows != NULL && keys != NULL) {
        snprintf(text, sizeof text, "%.*s%.*s%.*s", family, variant, 1 + (int)strcspn(rows + 1, " "), rows,
                 1 + (int)strcspn(keys + 1, " "), keys);
        fresh += visit(a, text, run);
    }
    for (const char *at = variant + family; *at == ' ';) {
        const size_t length = 1 + strcspn(at + 1, " ");
        snprintf(text, sizeof text, "%.*s%.*s", family, variant, (int)length, at);
        fresh += visit(a, text, run);
        at += length;
    }
    return fresh;
}

void axes_cover(axes *a, const char *(*text)(const void *user, size_t i), const void *user, size_t count, bool wanted[])
{
    for (size_t i = 0; i < count; i++)
        axes_note(a, text(user, i), wanted[i]);
    for (;;) {
        size_t best = 0, most = 0;
        for (size_t i = 0; i < count; i++) {
            const size_t fresh = wanted[i] ? 0 : axes_note(a, text(user, i), false);
            if (fresh > most)
                best = i, most = fresh;
        }
        if (most == 0)
            return;
        wanted[best] = true;
        axes_note(a, text(user, best), true);
    }
}

size_t axes_missing(const axes *a)
{
    size_t missing = 0;
    for (size_t i = 0; i < a->count; i++) {
        if (a->values[i].run)
            continue;
        fprintf(stderr, "no variant that was run has %s\n", a->values[i].text);
        missing++;
    }
    return missing;
}
