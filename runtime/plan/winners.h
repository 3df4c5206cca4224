/*
 * The database's winners for a class of problems (fa2i_cache_choices), held in memory. At most once a second, SQLite is
 * asked if this process or another one wrote to the database. Only then the winners are read again.
 *
 * Not thread-safe: the planner's caller holds the lock. Zeroed: empty, and not read yet.
 */
#pragma once

#include "runtime/plan/layers.h"

typedef struct fa2i_winners {
    fa2i_choice *choices;
    size_t count;
    bool is_current;  /* the winners belong to `version` */
    int64_t version;  /* fa2i_cache_data_version */
    int64_t asked_ns; /* when SQLite was last asked, by a monotonic clock; 0: never */
} fa2i_winners;

/* Updates the winners of the problem's class. *ret_read: they were read again, and earlier conclusions from the
 * database may no longer hold. After an error the old winners stay. Unless it is FA2_E_MEMORY, they serve for a second
 * before SQLite is asked again. */
fa2_status fa2i_winners_update(fa2i_winners *winners, fa2i_cache *own, const fa2i_layers *below, int arch,
                               const fa2_problem *problem, bool *ret_read);

/* Drops the winners whose kernel cannot be read now, until SQLite is asked again. Otherwise each would wait for
 * SQLite. */
void fa2i_winners_drop(fa2i_winners *winners, const fa2i_key *kernel);

void fa2i_winners_done(fa2i_winners *winners); /* zeroed objects are fine */
