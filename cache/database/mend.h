/*
 * Mends rows that one wrong bit damaged, if other rows or the row itself tell the right value:
 * - a problem: its fields, its class and its amount of work must agree. The index problem_fields has the fields, too;
 * - a kernel with code: its seal is a hash of its other values and its code;
 * - a device's SM, a session's device and a row's id: two or more results agree on another value.
 * A value that decides nothing is replaced as its rule says (rules.def). Other damage stays as it is.
 *
 * Threads. Inside a transaction of the cache for writing. cache->mended counts mended values.
 */
#pragma once

#include "cache/internal.h"
#include "runtime/base/text.h"

/* Register the SQL functions with a connection. Returns SQLite's result code. */
int fa2i_mend_register(sqlite3 *db);

/* Mend the rows in place. */
fa2_status fa2i_mend_rows(fa2i_cache *cache);

/* Add an SQL statement that counts the wrong rows of a table: rows that break the rules, refer to missing rows, or
 * contradict what tells their values. An empty table, and a root page that two tables share, count as one more. */
void fa2i_mend_add_faults(fa2i_text *sql, const char *table);

/* Make the table temp.problem_copy, with id and fields, for the content of the index problem_fields. */
fa2_status fa2i_mend_make_copy(fa2i_cache *cache);

/* Replace problems whose fields, class and work do not agree by the problems of that table, and add the missing ones.
 * *ret_dropped: rows that were dropped. *ret_put: rows that were replaced or added. */
fa2_status fa2i_mend_by_copy(fa2i_cache *cache, size_t *ret_dropped, size_t *ret_put);
