/*
 * Finds one wrong bit in the structure of a database: page headers, offsets of cells, sizes and types of values, page
 * numbers. SQLite cannot read what lies beyond such a bit. Each bit is tried: SQLite's own check and the rules for
 * values tell which one is wrong. The values themselves are not tried.
 *
 * Threads: any, with data of their own.
 */
#pragma once

#include "cache/internal.h"

/* All trials of one file may take this long together, in processor time. The log hears of them after a second, and then
 * every FA2I_TRIAL_LINES_S. */
#define FA2I_TRIAL_SECONDS 20.0
#define FA2I_TRIAL_LINES_S 5.0

/* The bytes of a database file, with a valid header. */
typedef struct fa2i_image {
    unsigned char *data; /* borrowed */
    size_t bytes, page_bytes;
    const fa2i_cache *cache; /* of the file: its log is told of a trial, and its stop ends it */
    double deadline;         /* as the thread's processor time */
    double *next_line;       /* the time of the next line in the log, as fa2i_now_s; borrowed */
} fa2i_image;

/* Mend the pages of the list of tables, in which all of `tables` must be. all: also if SQLite finds no fault in the
 * pages, but a table is missing. */
void fa2i_trial_schema(const fa2i_image *image, const char *const *tables, int count, bool all);

/* Mend the pages of each of these tables, and the number of its first page; the tables' texts are right. */
void fa2i_trial_tables(const fa2i_image *image, const char *const *tables, int count);
