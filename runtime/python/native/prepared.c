/*
 * Problems are chained by hash, and in a ring by age. Beyond the limit, the least recently used problem is dropped. The
 * limit is the library's (fa2.h), so every problem here is still prepared there. Slot 0 holds no problem: it closes the
 * ring.
 */
#include <stdlib.h>
#include <string.h>
#include "native.h"
#include "runtime/base/problem_hash.h"

enum { KEPT = 8192, PLACE_BITS = 13, PLACES = 1 << PLACE_BITS };

struct fa2py_slot {
    fa2_problem problem;
    size_t workspace_bytes;
    unsigned next; /* in the same chain; 0: the end */
    unsigned newer, older;
};

typedef struct fa2py_slot slot;

static unsigned *place_of(const fa2py_prepared *prepared, const fa2_problem *problem)
{
    return &prepared->places[fa2i_problem_hash(problem) >> (64 - PLACE_BITS)];
}

static void take_from_ring(slot *slots, unsigned number)
{
    slots[slots[number].newer].older = slots[number].older;
    slots[slots[number].older].newer = slots[number].newer;
}

static void put_first(slot *slots, unsigned number)
{
    const unsigned newest = slots[0].older;
    slots[number].newer = 0;
    slots[number].older = newest;
    slots[newest].newer = slots[0].older = number;
}

static slot *find_slot(const fa2py_prepared *prepared, const fa2_problem *problem)
{
    slot *slots = prepared->slots;
    unsigned number = slots == NULL ? 0 : *place_of(prepared, problem);
    while (number != 0 && memcmp(&slots[number].problem, problem, sizeof *problem) != 0)
        number = slots[number].next;
    if (number == 0)
        return NULL;
    take_from_ring(slots, number);
    put_first(slots, number);
    return &slots[number];
}

static bool make_room(fa2py_prepared *prepared)
{
    if (prepared->slots != NULL)
        return true;
    prepared->slots = calloc(KEPT + 1, sizeof *prepared->slots);
    prepared->places = calloc(PLACES, sizeof *prepared->places);
    if (prepared->slots != NULL && prepared->places != NULL)
        return true;
    fa2py_prepared_done(prepared);
    PyErr_NoMemory();
    return false;
}

static unsigned drop_oldest(fa2py_prepared *prepared)
{
    slot *slots = prepared->slots;
    const unsigned number = slots[0].newer;
    unsigned *at = place_of(prepared, &slots[number].problem);
    while (*at != number)
        at = &slots[*at].next;
    *at = slots[number].next;
    take_from_ring(slots, number);
    return number;
}

bool fa2py_prepared_add(fa2py_prepared *prepared, const fa2_problem *problem, size_t workspace_bytes)
{
    if (!make_room(prepared))
        return false;
    slot *known = find_slot(prepared, problem);
    if (known != NULL) {
        known->workspace_bytes = workspace_bytes;
        return true;
    }
    const unsigned number = prepared->count < KEPT ? ++prepared->count : drop_oldest(prepared);
    unsigned *place = place_of(prepared, problem);
    prepared->slots[number] = (slot){.problem = *problem, .workspace_bytes = workspace_bytes, .next = *place};
    *place = number;
    put_first(prepared->slots, number);
    return true;
}

bool fa2py_prepared_find(const fa2py_prepared *prepared, const fa2_problem *problem, size_t *ret_workspace_bytes)
{
    const slot *known = find_slot(prepared, problem);
    if (known != NULL)
        *ret_workspace_bytes = known->workspace_bytes;
    return known != NULL;
}

void fa2py_prepared_done(fa2py_prepared *prepared)
{
    free(prepared->slots);
    free(prepared->places);
    *prepared = (fa2py_prepared){.slots = NULL};
}
