/*
 * Prints progress on stderr. On a terminal one line with an ETA is rewritten in place. Otherwise a plain line comes
 * every few seconds. Not thread-safe: the main thread owns it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

typedef struct fa2i_progress {
    const char *what; /* "compiling", "verifying", "timing"; borrowed */
    size_t total, done;
    double started_s, printed_s;
    size_t mark, middle; /* counts at which the time was noted; see fa2i_progress_left */
    double mark_s, middle_s;
    bool terminal;
    bool line_open;
} fa2i_progress;

/* Sleeps between two checks on other processes: long compared with a check, too short for a person to notice. */
void fa2i_nap(void);

void fa2i_progress_begin(fa2i_progress *progress, const char *what, size_t total);
/* Counts one more finished item. detail (may be NULL) is shown after the counts. */
void fa2i_progress_step(fa2i_progress *progress, const char *detail);
/* Removes items from the total that turn out not to be needed. */
void fa2i_progress_drop(fa2i_progress *progress, size_t items);
void fa2i_progress_end(fa2i_progress *progress); /* prints the count and the time taken */

/* Without printing: the first counts one more item at this time. The second returns the seconds that are left, or a
 * negative number if the pace so far does not tell. */
void fa2i_progress_count(fa2i_progress *progress, double now);
double fa2i_progress_left(const fa2i_progress *progress, double now);

const char *fa2i_plural(size_t count); /* "s", or "" for 1 */

/* Prints a line on stderr without garbling an open progress line. */
void fa2i_note(fa2i_progress *progress, const char *format, ...) FA2I_PRINTF(2, 3);
