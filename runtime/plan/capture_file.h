/*
 * The file of a capture: counts of problems, as texts, and how they get into a file that others
 * write to as well.
 *
 * A line is "calls,batch,...", a row of a shape file, with all fields of problem.def in its order
 * behind the count. Not thread-safe; processes exclude each other.
 */
#ifndef FA2I_CAPTURE_FILE_H
#define FA2I_CAPTURE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fa2.h"

/* The same limit as that of a shape file (tuner/input). */
enum { FA2I_CAPTURE_BYTES_MAX = 16 << 20 };

typedef struct fa2i_call_count {
    char *text; /* the line after the count; owned, unless the list borrows */
    uint64_t calls;
} fa2i_call_count;

/* Zeroed is empty. */
typedef struct fa2i_call_counts {
    fa2i_call_count *items;
    size_t count, capacity;
    bool borrows; /* the texts belong to others */
} fa2i_call_counts;

void fa2i_call_counts_done(fa2i_call_counts *counts);

/* FA2_E_MEMORY, and nothing was added. */
fa2_status fa2i_call_counts_add(fa2i_call_counts *counts, const fa2_problem *problem,
                                uint64_t calls);

/* Create the file, if it is missing, and add the counts to it. FA2_E_IO names the file and says
 * why it stays as it is: it cannot be written, another process does not let go of it, it is no
 * capture of this fa2. The least called problems are left out where they are more than
 * FA2I_CAPTURE_BYTES_MAX. */
fa2_status fa2i_capture_file_add(const char *path, const fa2i_call_counts *counts);

#endif
