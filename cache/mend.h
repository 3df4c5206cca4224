/*
 * Mends rows that one wrong bit damaged, where other rows, or the row itself, tell what was there:
 * - a problem: its fields, its class and its amount of work must agree. The index problem_fields has the fields, too;
 * - a kernel with code: its seal is a hash of all that it must be;
 * - a device's SM, a session's device and a row's id: two results or more agree on another.
 * A value that decides nothing gets what its rule says (rules.def). What is not mended here stays as it is.
 *
 * Threads. Inside a transaction of the cache for writing. cache->mended counts mended values.
 */
#ifndef FA2I_CACHE_MEND_H
#define FA2I_CACHE_MEND_H

#include "cache/internal.h"
#include "runtime/base/text.h"

/* Make the SQL functions known to a connection. Returns SQLite's result code. */
int fa2i_mend_register(sqlite3 *db);

/* Mend the rows in place. */
fa2_status fa2i_mend_rows(fa2i_cache *cache);

/* Add an SQL statement that counts the rows of a table that cannot be right: by the rules, by what they refer to, and
 * by what tells their values. An empty table and a root page of two tables count, too. */
void fa2i_mend_add_faults(fa2i_text *sql, const char *table);

/* Make the table temp.problem_copy, with id and fields, for what the index problem_fields holds. */
fa2_status fa2i_mend_make_copy(fa2i_cache *cache);

/* Put the problems of that table in the place of those that are missing, or whose fields, class and work do not agree.
 * *ret_dropped, *ret_put: rows that were dropped, and put in their place or anew. */
fa2_status fa2i_mend_by_copy(fa2i_cache *cache, size_t *ret_dropped, size_t *ret_put);

#endif
