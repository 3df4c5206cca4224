/*
 * Finds the valid rows. A row is valid ("sound") if each column has a valid value (rules.def). The rows that it refers
 * to must exist, be valid, and fit together with it. Export writes valid rows, and gc keeps them. mend.h makes damaged
 * rows valid where it can.
 *
 * Threads. Inside a transaction of the cache (fa2i_sql_begin), also one for reading.
 */
#pragma once

#include "cache/internal.h"

/* For kernel k and device d: is the code for this device's SM? */
#define FA2I_TARGET_FITS                                                                                               \
    "iif(substr(k.target, 1, 3) = 'sm_', CAST(substr(k.target, 4) AS INTEGER) = d.arch, "                              \
    "CAST(substr(k.target, 9) AS INTEGER) <= d.arch)"

/* A table whose rows are judged. */
typedef struct fa2i_judged {
    const char *table;
    const char *key;  /* the columns of its primary key */
    const char *also; /* further conditions besides the rules, in SQL over the table t */
} fa2i_judged;

/* Sorted so that each table refers only to tables before it. */
enum { FA2I_JUDGED_COUNT = 7 };
extern const fa2i_judged fa2i_judged_tables[FA2I_JUDGED_COUNT];

/* Make the tables temp.sound_device, temp.sound_problem and so on, with the keys of the valid rows. They disappear with
 * a transaction that fails; else fa2i_sound_end drops them. */
fa2_status fa2i_sound_begin(fa2i_cache *cache);
fa2_status fa2i_sound_end(fa2i_cache *cache);

/* Count the rows of a table that have an invalid value, and write the sentence about one of them: "kernel: 'outcome'
 * must be ...". Adds to *count; writes the sentence only if it is empty. */
fa2_status fa2i_sound_count_faults(fa2i_cache *cache, const char *table, size_t *count, char *sentence,
                                   size_t sentence_bytes);
