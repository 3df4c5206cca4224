/*
 * Decides which files and folders are trusted. A cubin is code: anyone who can choose the bytes of the database chooses
 * the code that runs. Anyone who can put files beside it can do so, too, because SQLite plays back a journal (-journal,
 * -wal) that lies there whenever a transaction begins. The rules:
 * - a file belongs to this user or to root, and no other user can write it;
 * - the same holds for its folder, sticky or not, before SQLite opens the file by its name;
 * - others can rename none of the folders above it: they cannot write these, or the sticky bit is set. Below a folder
 *   that others cannot enter, they can write nothing;
 * - a group counts as others, unless it is this user's private group: it has the user's name and no other member, and
 *   the folder has no ACL;
 * - in any other folder a database is not opened by its name: its bytes are read through one descriptor.
 *
 * Errors. FA2_E_DATABASE says what is wrong, who owns it, and what helps; FA2_E_MEMORY. In every function, name is the
 * database's path as the caller gave it, for messages. Threads: any.
 */
#pragma once

#include <sys/stat.h>
#include "cache/internal.h"

/* Is this file trusted? info: from stat. */
fa2_status fa2i_trust_file(const char *name, const char *file, const struct stat *info);

/* Is the folder of this file trusted? The file need not exist. */
fa2_status fa2i_trust_folder_of(const char *name, const char *file);

/* The same for a folder that is to be made. Others may write its parent if that is sticky. */
fa2_status fa2i_trust_new_folder(const char *name, const char *folder);

/* FA2_OK if SQLite opened the file that was looked at before, and it is still trusted. */
fa2_status fa2i_trust_opened(const fa2i_cache *cache, const char *resolved, const struct stat *before);

/* Reads a trusted file, and no file beside it. *ret_data belongs to the caller (sqlite3_free); NULL
 * for an empty file. */
fa2_status fa2i_trust_read(const char *name, const char *resolved, unsigned char **ret_data, size_t *ret_bytes);

/* May this user change its mode? */
bool fa2i_trust_may_chmod(const struct stat *info);
