/*
 * The folder of the files that come with fa2: *.db, times that were measured elsewhere (cache/shipped/shipped.h).
 *
 * FA2_SHARE names the folder; empty, it means no folder. If it is not set, the folder is found beside the file that
 * contains this code, or where it was installed. A file that cannot be used is logged and passed over; the only error
 * is FA2_E_MEMORY. Thread-safe, as long as no thread changes the environment.
 */
#ifndef FA2I_SHARE_H
#define FA2I_SHARE_H

#include "cache/content/evidence.h"

/* Finds the folder. The caller owns *ret_folder (fa2i_free). It is NULL if there is no folder. */
fa2_status fa2i_share_find(char **ret_folder);

/* Hashes a file's name, size and time into the key. Reads no file; one that is not there has zeros. */
void fa2i_share_add_file(const char *name, const char *path, fa2i_key *key);

/* Hashes names, sizes and times of the files. The key changes when a file comes, goes or is replaced. Reads no file. */
fa2_status fa2i_share_key(const char *folder, fa2i_key *ret_key);

/* Adds what the files know of an operation on a card's SM, in the order of their names. folder may be NULL: then
 * nothing is added. log may be NULL. */
fa2_status fa2i_share_read(const char *folder, const fa2i_card *card, fa2_op op, fa2i_log_fn log, void *log_user,
                           fa2i_evidence *evidence);

#endif
