/*
 * Whose files and folders are believed. A cubin is code: who can choose the bytes of the database chooses what runs.
 * Who can put files beside it chooses them, too, because SQLite plays back a journal (-journal, -wal) that it finds
 * there, whenever a transaction begins. So:
 * - a file belongs to this user or to root, and nobody else can write it;
 * - the same holds for its folder, sticky or not, before SQLite opens the file by its name;
 * - of the folders above that one, others can rename none: they cannot write them, or these are sticky. Below a folder
 *   that others cannot enter, they can write none;
 * - a group counts as others, unless it is this user's private one: it has the user's name and no other member, and the
 *   folder no list of further users (ACL);
 * - in any other folder a database is not opened by its name: its bytes are read through one descriptor.
 *
 * Errors. FA2_E_DATABASE says what is wrong, whose it is, and what helps; FA2_E_MEMORY. name, everywhere: the
 * database as the caller calls it, for messages. Threads: any.
 */
#ifndef FA2I_CACHE_TRUST_H
#define FA2I_CACHE_TRUST_H

#include <sys/stat.h>
#include "cache/internal.h"

/* file: of which info was found. */
fa2_status fa2i_trust_file(const char *name, const char *file, const struct stat *info);

/* The folder of a file, which need not be there itself. */
fa2_status fa2i_trust_folder_of(const char *name, const char *file);

/* May a folder of this name be made? As above, but others may have files of their own in the folder where it comes. */
fa2_status fa2i_trust_new_folder(const char *name, const char *folder);

/* Is what SQLite opened the file that was looked at before? */
fa2_status fa2i_trust_opened(const fa2i_cache *cache, const char *resolved, const struct stat *before);

/* The bytes of a file that is believed, whatever lies beside it. *ret_data belongs to the caller (sqlite3_free); NULL
 * for an empty file. */
fa2_status fa2i_trust_read(const char *name, const char *resolved, unsigned char **ret_data, size_t *ret_bytes);

/* May this user change its mode? */
bool fa2i_trust_may_chmod(const struct stat *info);

#endif
