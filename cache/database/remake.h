/*
 * Makes a damaged file anew from the rows that can still be read.
 *
 * SQLite reads past a wrong page. If it then makes an index anew or compacts the file, the loss becomes permanent. So
 * nothing is written in place: all readable rows are mended and copied to a new database. Then the new database
 * replaces the file's content, in one transaction.
 *
 * Errors as in cache.h; then the file is as before. Threads: while the cache is opened.
 */
#pragma once

#include "cache/internal.h"

/* Does a table have the same columns as in a new database, with types and conditions? Inside a transaction. */
fa2_status fa2i_remake_has_columns(fa2i_cache *cache, fa2i_cache *reference, const char *table, bool *ret_has);

/* Check a file that is open for writing, and make it anew if it is damaged. If its tables are not of this version, do
 * nothing, because opening reports that. cache->remade says what was done. */
fa2_status fa2i_remake_if_damaged(fa2i_cache *cache, const char *resolved);
