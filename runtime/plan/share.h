/*
 * The folder of the files that come with fa2. shipped.db in it has times that were measured elsewhere
 * (cache/shipped/shipped.h); all other *.db are databases of the system (layers.h).
 *
 * FA2_SHARE names the folder; empty, it means no folder. If it is not set, the folder is found beside the file that
 * contains this code, or where it was installed. A file that cannot be used is logged and passed over; the only error
 * is FA2_E_MEMORY. Thread-safe, as long as no thread changes the environment.
 */
#pragma once

#include "cache/content/evidence.h"

#define FA2I_SHARE_TIMES "shipped.db"

/* Finds the folder. The caller owns *ret_folder (fa2i_free). It is NULL if there is no folder. */
fa2_status fa2i_share_find(char **ret_folder);

/* Hashes a file's name, size and time into the key. Reads no file; one that is not there has zeros. */
void fa2i_share_add_file(const char *name, const char *path, fa2i_key *key);

/* Hashes size and time of the file of times; zeros without one. So the key changes when it comes, goes or is replaced.
 * Reads no file. */
fa2_status fa2i_share_key(const char *folder, fa2i_key *ret_key);

/* Adds the times of an operation on a card's SM. folder may be NULL: then nothing is added. log may be NULL. */
fa2_status fa2i_share_read(const char *folder, const fa2i_card *card, fa2_op op, fa2i_log_fn log, void *log_user,
                           fa2i_evidence *evidence);
