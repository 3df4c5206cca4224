/*
 * Shared by the commands that use the database.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include "cache/content/filter.h"
#include "tuner/commands/commands.h"

/* Makes the path of a database: the given one, or (NULL) the default. The caller owns *ret_path (fa2i_free). */
fa2_status fa2i_database_path(const char *given, char **ret_path);

/* Opens the database at path (NULL: the default one). Its warnings (for example, a damaged image was skipped) go to
 * stderr. The caller owns *ret_cache (fa2i_cache_close). */
fa2_status fa2i_database_open(const char *path, fa2i_cache_mode mode, fa2i_cache **ret_cache);

/* Opens it with FA2I_CACHE_REPAIR, until *stop becomes nonzero (fa2i_cache_open_to_mend). */
fa2_status fa2i_database_open_to_mend(const char *path, const volatile sig_atomic_t *stop, fa2i_cache **ret_cache);

/* Like fa2i_database_open for reading. If there is no file (*ret_absent), opens an empty database in memory. */
fa2_status fa2i_database_open_or_empty(const char *path, bool *ret_absent, fa2i_cache **ret_cache);

/* The same for work that needs no database. *ret_cache stays NULL if there is no file. *ret_path stays NULL if there is
 * no place for one; then a line on stderr says that the work ("explaining") goes on without it. The caller owns
 * *ret_path (fa2i_free), also after an error. */
fa2_status fa2i_database_open_if_any(const char *path, const char *doing, char **ret_path, fa2i_cache **ret_cache);

/* Returns the error that opening it for writing would give, so that a dry run can warn. Creates nothing. */
fa2_status fa2i_database_check_writable(const char *path);

/* Copies this database alone into a new temporary folder. The caller owns *ret_path. fa2i_database_remove_copy frees it
 * and removes the copy with all files beside it (NULL: does nothing). FA2_E_IO: the folder cannot be made. */
fa2_status fa2i_database_copy(fa2i_cache *cache, char **ret_path);
void fa2i_database_remove_copy(char *path);

/* FA2_E_INVALID: a name given by --device is no part of a device's name in any of these databases. The message has the
 * names that are there. A number's device need not be in a database. */
fa2_status fa2i_database_check_device(fa2i_cache *const *caches, size_t count, const fa2i_options *options);

/* Names on stderr the devices that have no results because kernels did not compile, and the compiler's first line. */
fa2_status fa2i_database_say_uncompiled(fa2i_cache *cache, const fa2i_filter *filter);

/* If nothing passed a filter that names a device, prints on stderr which devices the database has. */
fa2_status fa2i_database_say_devices(fa2i_cache *cache, const fa2i_filter *filter);
