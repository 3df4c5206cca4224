/*
 * The database's winners for a class of problems (fa2i_cache_choices), held in memory. At most once
 * a second SQLite is asked whether the database was written meanwhile, by this process or by
 * another; only then they are read again.
 *
 * Not thread-safe: the planner's caller holds the lock. Zeroed is empty, and not read yet.
 */
#ifndef FA2I_WINNERS_H
#define FA2I_WINNERS_H

#include "cache/cache.h"

typedef struct fa2i_winners {
    fa2i_choice *choices;
    size_t count;
    bool is_current;  /* they are those of `version` */
    int64_t version;  /* fa2i_cache_data_version */
    int64_t asked_ns; /* when SQLite was last asked, by a clock that is never set; 0: never */
} fa2i_winners;

/* Bring the winners of the problem's class up to date. *ret_read: they were read, and what was
 * concluded from the database before may not hold any more. After an error those that were held
 * stay; but for FA2_E_MEMORY, they serve for a second before SQLite is asked again. */
fa2_status fa2i_winners_update(fa2i_winners *winners, fa2i_cache *cache, int arch,
                               const fa2_problem *problem, bool *ret_read);

/* Drop the winners with a kernel that cannot be read for now, until SQLite is asked again: each would wait for it. */
void fa2i_winners_drop(fa2i_winners *winners, const fa2i_key *kernel);

void fa2i_winners_done(fa2i_winners *winners); /* zeroed objects are fine */

#endif
