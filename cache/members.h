/*
 * The members of one JSON object, read by SQLite's JSON functions and checked: for lines that
 * strangers wrote.
 *
 * Errors. FA2_E_INVALID names the member and what is accepted; outputs are then untouched.
 * Threads. Inside a transaction of the cache (fa2i_sql_begin).
 */
#ifndef FA2I_CACHE_MEMBERS_H
#define FA2I_CACHE_MEMBERS_H

#include "cache/internal.h"

typedef struct fa2i_members {
    fa2i_cache *cache;    /* borrowed */
    const char *line;     /* borrowed until the next fa2i_members_set */
    sqlite3_stmt *member; /* owned: type and value of one member */
} fa2i_members;

/* FA2_E_DATABASE when this SQLite has no JSON functions. */
fa2_status fa2i_members_open(fa2i_cache *cache, fa2i_members *ret_members);
void fa2i_members_done(fa2i_members *members); /* zeroed objects are fine */

/* Read from this line from now on; it must be a JSON object. */
fa2_status fa2i_members_set(fa2i_members *members, const char *line);

bool fa2i_members_has(fa2i_members *members, const char *name);

/* A whole number in a range. */
fa2_status fa2i_members_int64(fa2i_members *members, const char *name, int64_t min, int64_t max,
                              int64_t *ret);
fa2_status fa2i_members_int(fa2i_members *members, const char *name, int min, int max, int *ret);
fa2_status fa2i_members_bool(fa2i_members *members, const char *name, bool *ret); /* 0 or 1 */

/* A number from 0 to 1e15. An error may be null: INFINITY. */
fa2_status fa2i_members_real(fa2i_members *members, const char *name, double *ret);
fa2_status fa2i_members_error(fa2i_members *members, const char *name, double *ret);

/* Text of 1 to out_bytes - 1 bytes without control characters. */
fa2_status fa2i_members_text(fa2i_members *members, const char *name, char *out, size_t out_bytes);
/* The same for text that only people read: may be empty; cut to fit; control characters are
 * blanked. */
fa2_status fa2i_members_remark(fa2i_members *members, const char *name, char *out,
                               size_t out_bytes);

fa2_status fa2i_members_outcome(fa2i_members *members, const char *name, fa2i_outcome *ret);
fa2_status fa2i_members_key(fa2i_members *members, const char *name, fa2i_key *ret); /* 64 hex */

/* Text of a fixed form. In the pattern, '0' stands for a digit, 'h' for a hex digit (0-9, a-f), all
 * else for itself. */
fa2_status fa2i_members_form(fa2i_members *members, const char *name, const char *pattern,
                             char *out, size_t out_bytes);

#endif
