/*
 * Reading an export, within cache/: one line after the other (import.c), what results refer to (import_things.c) and
 * results (import_results.c).
 *
 * Errors: FA2_E_INVALID says what is wrong with the current line, without its number. Not thread-safe; in one
 * write transaction, with the temporary tables of fa2i_import_begin.
 */
#ifndef FA2I_CACHE_IMPORT_H
#define FA2I_CACHE_IMPORT_H

#include <sha2.h>
#include "cache/members.h"
#include "cache/report.h"

typedef struct fa2i_import {
    fa2i_cache *cache;
    fa2i_members members;
    int64_t version;  /* of the file's format */
    const char *type; /* of the current line: a table */
    int64_t ours;     /* the row id here of what the current line describes; 0: it has none */
    bool is_unknown;  /* it is, or is about, a kernel whose variant nobody here knows */
    SHA2_CTX sha;     /* of the lines above the current one */
    bool ended;
    fa2i_variant_fn variant; /* may be NULL */
    void *user;
    fa2i_import_counts counts;
} fa2i_import;

/* Make the temporary tables that ids of the file are translated by; drop them. */
fa2_status fa2i_import_begin(fa2i_cache *cache);
fa2_status fa2i_import_end(fa2i_cache *cache);

/* The current line's id stands for in->ours from here on. */
fa2_status fa2i_import_remember_id(fa2i_import *in);

/* The row here that a member of the current line refers to: a table's id, or "kernel", a key. Of a kernel that was
 * passed over *ret_ours is 0, and in->is_unknown set. */
fa2_status fa2i_import_id(fa2i_import *in, const char *type, int64_t *ret_ours);
fa2_status fa2i_import_kernel_id(fa2i_import *in, int64_t *ret_ours);

/* One line of each type. */
fa2_status fa2i_import_device(fa2i_import *in);
fa2_status fa2i_import_problem(fa2i_import *in);
fa2_status fa2i_import_session(fa2i_import *in);
fa2_status fa2i_import_kernel(fa2i_import *in);
fa2_status fa2i_import_verification(fa2i_import *in);
fa2_status fa2i_import_measurement(fa2i_import *in);
fa2_status fa2i_import_winner(fa2i_import *in);

#endif
