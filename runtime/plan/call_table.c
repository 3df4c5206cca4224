/*
 * Open addressing with linear probing, at most half full. Entries are never removed.
 */
#include "runtime/plan/call_table.h"

#include "runtime/base/alloc.h"
#include "runtime/base/problem_hash.h"

enum { PLACES_FIRST = 256, PLACES_MOST = 2 * FA2I_CALL_TABLE_MOST };
_Static_assert((PLACES_MOST & (PLACES_MOST - 1)) == 0, "a power of two");

/* Returns the problem's slot, or the empty slot where it belongs. */
static fa2i_called *find(const fa2i_call_table *table, const fa2_problem *problem)
{
    for (uint64_t i = fa2i_problem_hash(problem) >> 32;; i++) {
        fa2i_called *here = &table->places[i & (table->place_count - 1)];
        if (here->calls == 0 || memcmp(&here->problem, problem, sizeof *problem) == 0)
            return here;
    }
}

static bool grow(fa2i_call_table *table)
{
    const size_t count = table->place_count == 0 ? PLACES_FIRST : 2 * table->place_count;
    fa2i_call_table larger = {.place_count = count, .count = table->count};
    if (count > PLACES_MOST || (larger.places = fa2i_alloc_array(count, sizeof *larger.places)) == NULL)
        return false;
    for (size_t i = 0; i < table->place_count; i++)
        if (table->places[i].calls > 0)
            *find(&larger, &table->places[i].problem) = table->places[i];
    fa2i_free(table->places);
    *table = larger;
    return true;
}

bool fa2i_call_table_add(fa2i_call_table *table, const fa2_problem *problem, uint64_t calls)
{
    fa2i_called *here = table->place_count == 0 ? NULL : find(table, problem);
    if (here == NULL || (here->calls == 0 && 2 * table->count >= table->place_count)) {
        if (!grow(table))
            return false;
        here = find(table, problem);
    }
    table->count += here->calls == 0;
    here->problem = *problem;
    here->calls += calls;
    return true;
}

void fa2i_call_table_done(fa2i_call_table *table)
{
    fa2i_free(table->places);
    *table = (fa2i_call_table){.places = NULL};
}
