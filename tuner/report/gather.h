/*
 * The contents of a report: rows of the database, copied as text.
 *
 * Plain data after fa2i_gather; not thread-safe. Errors: the database's, and FA2_E_MEMORY.
 */
#pragma once

#include "cache/content/report.h"

/* Rows of one view or table. Zeroed is empty. */
typedef struct fa2i_rows {
    fa2i_text text; /* the names of the columns, then the cells row by row; each ends with NUL */
    size_t *cells;  /* where in text each begins, names first. FA2I_NO_CELL: NULL */
    size_t count;   /* of cells, including the names */
    size_t capacity;
    size_t columns; /* 0: there was no row */
    bool failed;    /* out of memory */
} fa2i_rows;

#define FA2I_NO_CELL ((size_t)-1)

typedef struct fa2i_gathered {
    char *path; /* as the caller gave it; owned, as are all members */
    fa2i_rows devices, sessions, winners, measurements;
    fa2i_rows ceilings, naive; /* benchmark_file.h */
} fa2i_gathered;

/* Reads a database: all of it, or the rows that pass the filter. Devices and sessions are always complete. On FA2_OK
 * the caller owns *ret_gathered (fa2i_gathered_done). */
fa2_status fa2i_gather(fa2i_cache *cache, const fa2i_filter *filter, fa2i_gathered *ret_gathered);

/* Fills *rows with the rows of a statement about a JSON text, its ?1. *rows must be zeroed; the caller owns it also
 * after an error. FA2_E_DATABASE: the statement does not accept the text. */
fa2_status fa2i_gather_json(fa2i_cache *cache, const char *sql, const char *json, fa2i_rows *rows);

void fa2i_gathered_done(fa2i_gathered *gathered); /* accepts zeroed objects */
void fa2i_rows_done(fa2i_rows *rows);             /* likewise */

size_t fa2i_rows_count(const fa2i_rows *rows);

/* Borrowed. NULL stands for SQL NULL. */
const char *fa2i_rows_name(const fa2i_rows *rows, size_t column);
const char *fa2i_rows_cell(const fa2i_rows *rows, size_t row, size_t column);
