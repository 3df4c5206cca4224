/*
 * Text tables for people, on any stream.
 *
 * A table is as wide as its widest cells, counted in characters of UTF-8; on a terminal that is narrower, columns at
 * its end go on lines of their own below each row, those of numbers behind their titles. Appending is sticky: out
 * of memory is reported once, by fa2i_table_print. Not thread-safe.
 */
#ifndef FA2I_TABLE_H
#define FA2I_TABLE_H

#include <stddef.h>
#include <stdio.h>
#include "runtime/base/shown.h"
#include "runtime/base/status.h"
#include "tuner/report/terminal.h"

enum { FA2I_TABLE_COLUMNS_MAX = 48 };

typedef struct fa2i_table {
    size_t columns;
    const char *align; /* per column 'l' or 'r'; borrowed */
    char **cells;      /* row by row, the titles first; owned */
    size_t count, capacity;
    char *styles; /* per row a fa2i_style; owned */
    int failed;   /* 1: out of memory */
} fa2i_table;

/* titles: one per column, as many as align has letters (at most FA2I_TABLE_COLUMNS_MAX). Copied. */
void fa2i_table_init(fa2i_table *table, const char *align, const char *const *titles);

/* One row; a NULL cell is shown as "-". Copied, and escaped (runtime/base/shown.h). */
void fa2i_table_add(fa2i_table *table, const char *const *cells);

/* Where there are colours, show the last row so. */
void fa2i_table_style(fa2i_table *table, fa2i_style style);

/* Titles, a rule, the rows. FA2_E_MEMORY, then nothing is printed. */
fa2_status fa2i_table_print(const fa2i_table *table, FILE *out);

size_t fa2i_table_rows(const fa2i_table *table); /* without the titles */
void fa2i_table_done(fa2i_table *table);         /* zeroed objects are fine */

#endif
