/*
 * What the commands that use the database share.
 */
#ifndef FA2I_DATABASE_H
#define FA2I_DATABASE_H

#include <stdbool.h>
#include "cache/filter.h"

/* Open the database at path (NULL: the default one). What it has to say on the way (a damaged image
 * that was skipped) goes to stderr. *ret_cache belongs to the caller (fa2i_cache_close). */
fa2_status fa2i_database_open(const char *path, fa2i_cache_mode mode, fa2i_cache **ret_cache);

/* The same for reading; where there is no file (*ret_absent), an empty one in memory. */
fa2_status fa2i_database_open_or_empty(const char *path, bool *ret_absent, fa2i_cache **ret_cache);

/* The same, for work that needs no database. *ret_cache stays NULL where there is no file, and *ret_path too where there
 * is no place for one; then a line on stderr says what is done ("explaining") without it. *ret_path belongs to the
 * caller (fa2i_free), also after an error. */
fa2_status fa2i_database_open_if_any(const char *path, const char *doing, char **ret_path, fa2i_cache **ret_cache);

/* What opening it for writing would fail with, of which a dry run warns: nothing is made. */
fa2_status fa2i_database_check_writable(const char *path);

/* A copy of this database alone, in a new folder of temporary files. *ret_path belongs to the caller, whose
 * fa2i_database_remove_copy removes it with all that is kept beside it (NULL: nothing). FA2_E_IO: there can be no
 * such folder. */
fa2_status fa2i_database_copy(fa2i_cache *cache, char **ret_path);
void fa2i_database_remove_copy(char *path);

/* Where nothing passed a filter that names a device: which devices the database has, on stderr. */
fa2_status fa2i_database_say_devices(fa2i_cache *cache, const fa2i_filter *filter);

/* A variant's text without what the problem says already: its KIND fields. out_bytes of
 * FA2I_VARIANT_CHARS are always enough. */
void fa2i_variant_brief(const char *variant_text, char *out, size_t out_bytes);

#endif
