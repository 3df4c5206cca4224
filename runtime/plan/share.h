/*
 * The folder of what comes with fa2: *.jsonl, times that were measured elsewhere (cache/shipped.h).
 *
 * It is $FA2_SHARE; else beside the file that this code is in, or where it was to be installed. FA2_SHARE= (empty)
 * is none. What cannot be used is told through the log and passed over: the only error is FA2_E_MEMORY. Thread-safe,
 * but for the environment.
 */
#ifndef FA2I_SHARE_H
#define FA2I_SHARE_H

#include "cache/evidence.h"

/* *ret_folder belongs to the caller (fa2i_free); NULL: there is none. */
fa2_status fa2i_share_find(char **ret_folder);

/* A hash of what there is to read. It changes when a file comes, goes or is replaced by another export. Reads only the
 * end of each file, where an export has the hash of its content. */
fa2_status fa2i_share_key(const char *folder, fa2i_key *ret_key);

/* Add what the files know of an operation on a card's SM, in the order of their names; without a folder (NULL)
 * nothing. log may be NULL. */
fa2_status fa2i_share_read(const char *folder, const fa2i_card *card, fa2_op op, fa2i_log_fn log,
                           void *log_user, fa2i_evidence *evidence);

#endif
