/*
 * A hash table with open addressing, at most three quarters full, from which nothing is taken away.
 */
#include <stdlib.h>
#include <string.h>
#include "native.h"

enum { SLOTS_FIRST = 64 };

struct fa2py_slot {
    bool used;
    fa2_problem problem;
    size_t workspace_bytes;
};

typedef struct fa2py_slot slot;

static size_t hash_problem(const fa2_problem *problem)
{
    uint64_t words[sizeof *problem / sizeof(uint64_t)], hash = 0;
    memcpy(words, problem, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return (size_t)hash;
}

/* The problem's slot, or the empty one where it would go. There always is an empty one. */
static slot *find_slot(slot *slots, size_t count, const fa2_problem *problem)
{
    for (size_t i = hash_problem(problem);; i++) {
        slot *here = &slots[i & (count - 1)];
        if (!here->used || memcmp(&here->problem, problem, sizeof *problem) == 0)
            return here;
    }
}

static bool grow(fa2py_prepared *prepared)
{
    const size_t count = prepared->slot_count == 0 ? SLOTS_FIRST : 2 * prepared->slot_count;
    slot *slots = calloc(count, sizeof *slots);
    if (slots == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < prepared->slot_count; i++)
        if (prepared->slots[i].used)
            *find_slot(slots, count, &prepared->slots[i].problem) = prepared->slots[i];
    free(prepared->slots);
    prepared->slots = slots;
    prepared->slot_count = count;
    return true;
}

bool fa2py_prepared_add(fa2py_prepared *prepared, const fa2_problem *problem,
                        size_t workspace_bytes)
{
    if (4 * (prepared->used_count + 1) > 3 * prepared->slot_count && !grow(prepared))
        return false;
    slot *here = find_slot(prepared->slots, prepared->slot_count, problem);
    prepared->used_count += !here->used;
    *here = (slot){true, *problem, workspace_bytes};
    return true;
}

bool fa2py_prepared_find(const fa2py_prepared *prepared, const fa2_problem *problem,
                         size_t *ret_workspace_bytes)
{
    if (prepared->slot_count == 0)
        return false;
    const slot *here = find_slot(prepared->slots, prepared->slot_count, problem);
    if (here->used)
        *ret_workspace_bytes = here->workspace_bytes;
    return here->used;
}

void fa2py_prepared_done(fa2py_prepared *prepared)
{
    free(prepared->slots);
    *prepared = (fa2py_prepared){.slots = NULL};
}
