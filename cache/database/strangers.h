/*
 * Finds objects in the file that are not in the schema of this fa2. SQLite runs some of them in our statements:
 * triggers, expressions of indexes, generated columns, checks of tables. They cannot reach outside the file. But they
 * can run without end and change the rows. The file's own views are never read (fa2i_columns_make_views).
 *
 * Errors. FA2_E_DATABASE names the object and says what to do. Threads: inside a transaction of the cache.
 */
#pragma once

#include "cache/internal.h"

/* Refuse objects that our statements would run; for every opening. Reading runs only generated columns. */
fa2_status fa2i_strangers_refuse(fa2i_cache *cache, bool for_writing);

/* Write a sentence about the first object that a new file (reference) does not have, or about a table with another
 * text. The sentence is untouched when there is none. Comments and blanks do not count. */
fa2_status fa2i_strangers_find(fa2i_cache *cache, fa2i_cache *reference, char *sentence, size_t sentence_bytes);

/* Drop triggers, indexes and views that a new file does not have, or has with another text. Tables stay, because
 * somebody may need them. Under the write lock. */
fa2_status fa2i_strangers_drop(fa2i_cache *cache, fa2i_cache *reference);
