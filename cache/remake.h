/*
 * Makes a damaged file anew from the rows that can still be read.
 *
 * SQLite reads past a wrong page, and would make the loss permanent when it makes an index anew or compacts the file.
 * So nothing is written in place: all rows that can be read are mended, and copied to a new database. Then that takes
 * the place of the file's content, in one transaction.
 *
 * Errors as in cache.h; then the file is as before. Threads: while the cache is opened.
 */
#ifndef FA2I_CACHE_REMAKE_H
#define FA2I_CACHE_REMAKE_H

#include "cache/internal.h"

/* Has a table the columns, with their types and conditions, of that in a new database? Inside a transaction. */
fa2_status fa2i_remake_has_columns(fa2i_cache *cache, fa2i_cache *reference, const char *table, bool *ret_has);

/* Look at a file that is open for writing, and make it anew if it is damaged. Does nothing if its tables are not those
 * of this version: opening it says what is wrong. cache->remade says what was done. */
fa2_status fa2i_remake_if_damaged(fa2i_cache *cache, const char *resolved);

#endif
