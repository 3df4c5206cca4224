/*
 * Finds one wrong bit in what holds the pages of a database together: page headers, places of cells, sizes and types
 * of values, numbers of pages. SQLite cannot read what lies beyond such a bit. Each bit is tried. SQLite's own check
 * and the rules for values say which one is right. Values are not tried.
 *
 * Threads: any, with data of their own.
 */
#ifndef FA2I_CACHE_TRIAL_H
#define FA2I_CACHE_TRIAL_H

#include <stdbool.h>
#include <stddef.h>

/* The bytes of a database file, with a sound header. */
typedef struct fa2i_image {
    unsigned char *data; /* borrowed */
    size_t bytes, page_bytes;
} fa2i_image;

/* Mend the pages of the list of tables, where all of these must be. all: also if SQLite finds nothing wrong in the
 * pages, and a table is not there. */
void fa2i_trial_schema(const fa2i_image *image, const char *const *tables, int count, bool all);

/* Mend the pages of one table, and the number of its first page; its text is right. faults: an SQL statement that
 * counts the table's values that cannot be. Returns true if a bit was mended. */
bool fa2i_trial_table(const fa2i_image *image, const char *table, const char *faults);

#endif
