/*
 * What a report is made of: rows of the database as text, copied.
 *
 * Pure data after fa2i_gather; not thread-safe. Errors: those of the database, FA2_E_MEMORY.
 */
#ifndef FA2I_GATHER_H
#define FA2I_GATHER_H

#include "cache/report.h"

/* Rows of one view or table. Zeroed is empty. */
typedef struct fa2i_rows {
    fa2i_text text; /* names of the columns, then the cells, row by row, each with its NUL */
    size_t *cells;  /* where in text each begins; FA2I_NO_CELL: NULL. Names first */
    size_t count;   /* of cells, with the names */
    size_t capacity;
    size_t columns; /* 0: there was no row */
    bool failed;    /* out of memory */
} fa2i_rows;

#define FA2I_NO_CELL ((size_t)-1)

typedef struct fa2i_gathered {
    char *path; /* as the caller gave it; owned, as is the rest */
    fa2i_rows devices, sessions, winners, measurements;
    fa2i_rows ceilings, naive; /* benchmark_file.h */
} fa2i_gathered;

/* Read a database: all of it, or what passes the filter; devices and sessions are all there. On FA2_OK
 * *ret_gathered belongs to the caller (fa2i_gathered_done). */
fa2_status fa2i_gather(fa2i_cache *cache, const fa2i_filter *filter, fa2i_gathered *ret_gathered);

/* The rows of a statement about a JSON text, which is its ?1; *rows, zeroed before, is the caller's also after an
 * error. FA2_E_DATABASE: the text is not what the statement takes. */
fa2_status fa2i_gather_json(fa2i_cache *cache, const char *sql, const char *json, fa2i_rows *rows);

void fa2i_gathered_done(fa2i_gathered *gathered); /* zeroed objects are fine */

size_t fa2i_rows_count(const fa2i_rows *rows);

/* NULL: SQL NULL. Borrowed. */
const char *fa2i_rows_name(const fa2i_rows *rows, size_t column);
const char *fa2i_rows_cell(const fa2i_rows *rows, size_t row, size_t column);

#endif
