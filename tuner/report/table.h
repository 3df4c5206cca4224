/*
 * Text tables for people, on any stream.
 *
 * Each column is as wide as its widest cell, in UTF-8 characters. On a terminal that is too narrow, the last columns go
 * on lines of their own below each row; numbers then follow their titles. Appending keeps errors: fa2i_table_print
 * reports once if memory ran out. Not thread-safe.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>
#include "runtime/base/shown.h"
#include "runtime/base/status.h"
#include "tuner/report/terminal.h"

enum { FA2I_TABLE_COLUMNS_MAX = 48 };

typedef struct fa2i_table {
    size_t columns;
    const char *align; /* per column 'l' or 'r'; borrowed */
    char **cells;      /* row by row, titles first; owned */
    size_t count, capacity;
    char *styles; /* per row a fa2i_style; owned */
    int failed;   /* 1: out of memory */
} fa2i_table;

/* titles: one per letter of align, at most FA2I_TABLE_COLUMNS_MAX. Copied. */
void fa2i_table_init(fa2i_table *table, const char *align, const char *const *titles);

/* Adds one row. A NULL cell is shown as "-". Cells are copied and escaped (runtime/base/shown.h). */
void fa2i_table_add(fa2i_table *table, const char *const *cells);

/* The same with a printf format, in which \t begins the next cell. Cells that it does not have are shown as "-". */
void fa2i_table_row(fa2i_table *table, const char *format, ...) FA2I_PRINTF(2, 3);

/* Shows the last row in this style if the stream has colours. */
void fa2i_table_style(fa2i_table *table, fa2i_style style);

/* Prints titles, a rule and the rows. On FA2_E_MEMORY it prints nothing. */
fa2_status fa2i_table_print(const fa2i_table *table, FILE *out);

size_t fa2i_table_rows(const fa2i_table *table); /* without the titles */
void fa2i_table_done(fa2i_table *table);         /* accepts zeroed objects */

/* fa2i_table_print, then fa2i_table_done. */
fa2_status fa2i_table_end(fa2i_table *table, FILE *out);
