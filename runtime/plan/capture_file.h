/*
 * The file of a capture: counts of problems, as texts, and adding them to a file that other processes write to as well.
 *
 * A line is "calls,batch,...": the count, and then a row of a shape file with all fields of problem.def in their order.
 * Beside it lies FILE.counters, with lines "12,calls_exact": the counters of all contexts, added up.
 *
 * Not thread-safe. Processes exclude each other by a lock.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "runtime/plan/counters.h"

/* The limit that shape files have, too (tuner/input). */
enum { FA2I_CAPTURE_BYTES_MAX = 16 << 20 };

typedef struct fa2i_call_count {
    char *text; /* the line after the count; owned unless the list's `borrows` is set */
    uint64_t calls;
} fa2i_call_count;

/* Zeroed: empty. */
typedef struct fa2i_call_counts {
    fa2i_call_count *items;
    size_t count, capacity;
    bool borrows; /* others own the texts */
} fa2i_call_counts;

void fa2i_call_counts_done(fa2i_call_counts *counts);

/* Adds calls of a problem. On FA2_E_MEMORY nothing was added. */
fa2_status fa2i_call_counts_add(fa2i_call_counts *counts, const fa2_problem *problem, uint64_t calls);

/* Creates the file if it is missing, and adds the counts to it. If they exceed FA2I_CAPTURE_BYTES_MAX, the least called
 * problems are left out. On FA2_E_IO the file is unchanged, and the message names it and the cause: it cannot be
 * written, another process holds the lock too long, or it is not a capture of this fa2. */
fa2_status fa2i_capture_file_add(const char *path, const fa2i_call_counts *counts);

/* The same for the counters, in the file path.counters. A value of 0 makes no line. */
fa2_status fa2i_capture_file_add_counters(const char *path, const uint64_t values[FA2I_COUNTERS]);
