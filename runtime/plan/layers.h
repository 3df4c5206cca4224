/*
 * The databases that a planner reads: the user's own one, and below it the system's databases, which are never written.
 * A planner takes from the first database that has it, the own one before all others. It takes no kernel that the own
 * database knows to be wrong.
 *
 * $FA2_SYSTEM_DB names the system's files, with ':' between them. If it is not set, they are the files *.db in the folder
 * of the files that come with fa2 (share.h), in the order of their names, without the file of times and hidden ones. The
 * rules of trust are the cache's (cache/database/trust.h). A
 * file that cannot be used is logged and passed over. A file is opened once, however often it is named; later changes
 * are not seen.
 *
 * own may be NULL: there is no database of the user. Errors: FA2_E_MEMORY, and errors of own. Threads: see planner.h.
 */
#pragma once

#include "cache/content/evidence.h"

enum { FA2I_LAYERS_MAX = 8 };

typedef struct fa2i_layers {
    fa2i_cache *caches[FA2I_LAYERS_MAX]; /* owned, the first one first */
    size_t count;
    fa2i_key key; /* changes when a file comes, goes or is replaced; 0: no file */
} fa2i_layers;

/* Opens the system's databases. share: folder of the files that come with fa2; may be NULL. log may be NULL. On FA2_OK
 * the caller owns *ret_layers (fa2i_layers_close). */
fa2_status fa2i_layers_open(const char *share, fa2i_log_fn log, void *log_user, fa2i_layers *ret_layers);
void fa2i_layers_close(fa2i_layers *layers); /* zeroed objects are fine */

/* As fa2i_cache_get_kernel. FA2_E_NOT_FOUND: none of them has it. */
fa2_status fa2i_layers_get_kernel(fa2i_cache *own, const fa2i_layers *below, const fa2i_key *key, int abi,
                                  bool with_image, fa2i_kernel *ret_kernel);

/* Finds the database from which that comes with the code. On FA2_OK the caller owns *ret_path (fa2i_free). */
fa2_status fa2i_layers_find_code(fa2i_cache *own, const fa2i_layers *below, const fa2i_key *key, int abi,
                                 char **ret_path);

/* As fa2i_cache_refutation and fa2i_cache_variant_refutation: the first fault that any of them found. A database that
 * cannot be read found none. */
fa2i_outcome fa2i_layers_refutation(fa2i_cache *own, const fa2i_layers *below, const fa2i_key *key);
fa2i_outcome fa2i_layers_variant_refutation(fa2i_cache *own, const fa2i_layers *below, const char *variant);

/* As fa2i_cache_choices: own winners, then those below. A winner below that own refuted has that fault. */
fa2_status fa2i_layers_choices(fa2i_cache *own, const fa2i_layers *below, int arch, const fa2_problem *problem, int abi,
                               fa2i_choice **ret_choices, size_t *ret_count);

/* Adds the evidence of the databases below, for problems that the evidence does not have on exactly this card, and
 * without the kernels that own refuted. */
fa2_status fa2i_layers_add_evidence(fa2i_cache *own, const fa2i_layers *below, const fa2i_card *card, fa2_op op,
                                    int abi, fa2i_evidence *evidence);
