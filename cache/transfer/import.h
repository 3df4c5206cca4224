/*
 * Reading an export, within cache/. import.c reads line by line, import_things.c the rows that results refer to,
 * import_results.c the results, and code.c the code.
 *
 * Errors: FA2_E_INVALID says what is wrong with the current line, without its number. Not thread-safe. All functions
 * run in one write transaction, with the temporary tables of fa2i_import_begin.
 */
#pragma once

#include <sha2.h>
#include "cache/transfer/members.h"
#include "cache/content/report.h"

/* The code of one kernel, as far as its lines were read. Zeroed: none. */
typedef struct fa2i_code {
    fa2i_key kernel;
    uint8_t *data; /* owned */
    size_t bytes, known;
} fa2i_code;

typedef struct fa2i_import {
    fa2i_cache *cache;
    fa2i_members members;
    const char *type; /* of the current line: the name of a table */
    int64_t ours;     /* id of the current line's row here; 0: it has none */
    bool is_unknown;  /* the line is a kernel of an unknown variant, or refers to one */
    SHA2_CTX sha;     /* of the lines above the current one */
    bool ended;
    bool trusts_code; /* the file's code is taken (code.c) */
    fa2i_code code;
    fa2i_variant_fn variant; /* may be NULL */
    void *user;
    fa2i_import_counts counts;
} fa2i_import;

/* Make, and drop, the temporary tables that translate the file's ids. */
fa2_status fa2i_import_begin(fa2i_cache *cache);
fa2_status fa2i_import_end(fa2i_cache *cache);

/* From here on the current line's id stands for in->ours. */
fa2_status fa2i_import_remember_id(fa2i_import *in);

/* Get the row here that a member of the current line refers to: by a table's id, or by a kernel's key. For a kernel
 * that was passed over, *ret_ours is 0 and in->is_unknown is set. */
fa2_status fa2i_import_id(fa2i_import *in, const char *type, int64_t *ret_ours);
fa2_status fa2i_import_kernel_id(fa2i_import *in, int64_t *ret_ours);

/* Each reads one line of its type. */
fa2_status fa2i_import_device(fa2i_import *in);
fa2_status fa2i_import_problem(fa2i_import *in);
fa2_status fa2i_import_session(fa2i_import *in);
fa2_status fa2i_import_kernel(fa2i_import *in);
fa2_status fa2i_import_verification(fa2i_import *in);
fa2_status fa2i_import_measurement(fa2i_import *in);
fa2_status fa2i_import_winner(fa2i_import *in);
fa2_status fa2i_import_code(fa2i_import *in);

/* Fails if the last code is not complete. */
fa2_status fa2i_import_code_end(const fa2i_import *in);
