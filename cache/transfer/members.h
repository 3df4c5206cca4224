/*
 * Reads and checks the members of one JSON object, with SQLite's JSON functions: for lines that strangers wrote.
 *
 * Errors. FA2_E_INVALID names the member and says what is accepted; outputs are then untouched.
 * Threads. Inside a transaction of the cache (fa2i_sql_begin).
 */
#pragma once

#include "cache/internal.h"

typedef struct fa2i_members {
    fa2i_cache *cache;    /* borrowed */
    const char *line;     /* borrowed until the next fa2i_members_set */
    const char *table;    /* the members are columns of this table */
    sqlite3_stmt *member; /* owned: type and value of one member */
} fa2i_members;

/* FA2_E_DATABASE when this SQLite has no JSON functions. */
fa2_status fa2i_members_open(fa2i_cache *cache, fa2i_members *ret_members);
void fa2i_members_done(fa2i_members *members); /* zeroed objects are fine */

/* Read from this line from now on; it must be a JSON object. */
fa2_status fa2i_members_set(fa2i_members *members, const char *line);

bool fa2i_members_has(fa2i_members *members, const char *name);

/* Get a member that is no column: a whole number in a range; a word of a-z, 0-9 and '_'; a key of 64 hex digits. */
fa2_status fa2i_members_number(fa2i_members *members, const char *name, int64_t min, int64_t max, int64_t *ret);
fa2_status fa2i_members_word(fa2i_members *members, const char *name, char *out, size_t out_bytes);
fa2_status fa2i_members_key(fa2i_members *members, const char *name, fa2i_key *ret);

/* The same for bytes as hex digits. */
fa2_status fa2i_members_bytes(fa2i_members *members, const char *name, uint8_t *out, size_t most, size_t *ret_count);

/* Get columns of members->table, checked by their rules (rules.def). Real: null is INFINITY if the rule accepts it.
 * Text: it must also fit out_bytes. Remark: cut to fit, and control characters become blanks. */
fa2_status fa2i_members_int64(fa2i_members *members, const char *name, int64_t *ret);
fa2_status fa2i_members_int(fa2i_members *members, const char *name, int *ret);
fa2_status fa2i_members_bool(fa2i_members *members, const char *name, bool *ret);
fa2_status fa2i_members_real(fa2i_members *members, const char *name, double *ret);
fa2_status fa2i_members_text(fa2i_members *members, const char *name, char *out, size_t out_bytes);
fa2_status fa2i_members_remark(fa2i_members *members, const char *name, char *out, size_t out_bytes);
fa2_status fa2i_members_outcome(fa2i_members *members, const char *name, fa2i_outcome *ret);
