/*
 * Mends rows that one wrong bit damaged, where other rows, or the row itself, tell what was there:
 * - a problem: its fields, its class and its amount of work must agree;
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
int fa2i_mend_register(sqlite3 *db, size_t *mended);

/* Add an SQL expression for a column of the row t, as fa2i_rules_add_mended; for a problem, from all of its columns. */
void fa2i_mend_add_column(fa2i_text *sql, const char *table, const char *column);

/* Mend the rows in place. */
fa2_status fa2i_mend_rows(fa2i_cache *cache);

#endif
