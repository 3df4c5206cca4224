/*
 * What a file may hold besides the schema of this fa2, and what SQLite would run of it in our statements: triggers,
 * expressions of indexes, generated columns, checks of tables. None of it can reach outside the file, but it takes time
 * without end and changes what is stored. The file's own views are never read (fa2i_columns_make_views).
 *
 * Errors. FA2_E_DATABASE names it and says what to do. Threads: inside a transaction of the cache.
 */
#ifndef FA2I_CACHE_STRANGERS_H
#define FA2I_CACHE_STRANGERS_H

#include "cache/internal.h"

/* For every opening: refuse what statements of ours would run. Reading runs generated columns alone. */
fa2_status fa2i_strangers_refuse(fa2i_cache *cache, bool for_writing);

/* For checking: a sentence about the first object that a new file (reference) does not have, or table that is another
 * than its own; untouched when there is none. Comments and blanks do not count. */
fa2_status fa2i_strangers_find(fa2i_cache *cache, fa2i_cache *reference, char *sentence, size_t sentence_bytes);

/* For repairing, under the write lock: drop triggers, indexes and views that a new file does not have, or not so. Tables
 * are left: they may be somebody's. */
fa2_status fa2i_strangers_drop(fa2i_cache *cache, fa2i_cache *reference);

#endif
