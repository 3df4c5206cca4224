/*
 * Progress for people, on stderr: one line rewritten in place with ETA on a terminal, a plain line
 * every few seconds otherwise. Not thread-safe: the main thread owns it.
 */
#ifndef FA2I_PROGRESS_H
#define FA2I_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include "runtime/base/status.h"

typedef struct fa2i_progress {
    const char *what; /* "compiling", "verifying", "timing"; borrowed */
    size_t total, done;
    double started_s, printed_s;
    size_t mark, middle; /* counts at which the time was noted: fa2i_progress_left */
    double mark_s, middle_s;
    bool terminal;
    bool line_open;
} fa2i_progress;

double fa2i_now_s(void); /* monotonic seconds */

/* Between two looks at what others do: long against a look, short against what a person notices. */
void fa2i_nap(void);

void fa2i_progress_begin(fa2i_progress *progress, const char *what, size_t total);
/* One more item is finished; detail (may be NULL) is shown behind the counts. */
void fa2i_progress_step(fa2i_progress *progress, const char *detail);
/* That many items of the total turn out not to be wanted. */
void fa2i_progress_drop(fa2i_progress *progress, size_t items);
void fa2i_progress_end(fa2i_progress *progress); /* prints count and time taken */

/* Without printing: one more item at this time, and the seconds that are left then; negative while
 * the pace so far does not tell. */
void fa2i_progress_count(fa2i_progress *progress, double now);
double fa2i_progress_left(const fa2i_progress *progress, double now);

const char *fa2i_plural(size_t count); /* "s", or "" for 1 */

/* A line of its own on stderr that does not garble an open progress line. */
void fa2i_note(fa2i_progress *progress, const char *format, ...) FA2I_PRINTF(2, 3);

#endif
