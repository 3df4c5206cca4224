/*
 * The database's winners for a class of problems (fa2i_cache_choices), held in memory: SQLite is
 * asked again only when the file was written meanwhile, by this process or by another.
 *
 * Not thread-safe: the planner's caller holds the lock. Zeroed is empty, and not read yet.
 */
#ifndef FA2I_WINNERS_H
#define FA2I_WINNERS_H

#include "cache/cache.h"

typedef struct fa2i_winners {
    fa2i_choice *choices;
    size_t count;
    int64_t written_ns; /* when the file was last written, as of the reading; 0: read again */
} fa2i_winners;

/* Bring the winners of the problem's class up to date. After an error there are none. */
fa2_status fa2i_winners_update(fa2i_winners *winners, fa2i_cache *cache, int arch,
                               const fa2_problem *problem);

/* Drop the winners with a kernel that cannot be used. for_now: until the next update, which then
 * reads them again; else until the file is written. */
void fa2i_winners_drop(fa2i_winners *winners, const fa2i_key *kernel, bool for_now);

void fa2i_winners_done(fa2i_winners *winners); /* zeroed objects are fine */

#endif
