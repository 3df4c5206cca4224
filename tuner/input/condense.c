/*
 * Problems of a program whose sizes differ a little are one problem for the tuner, because it asks the cost model about
 * rounded sizes anyway. A growing decode calls thousands of lengths a few times each.
 */
#include <stdlib.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/input/shapes.h"

/* A problem with at least this share of its group's calls stays. */
#define OWN_SHARE 0.125

typedef struct entry {
    fa2_problem rounded;
    size_t index;
    double calls; /* 0: it is removed */
} entry;

/* Sorts equal ones together, and the most called one first. */
static int compare(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    const int order = memcmp(&a->rounded, &b->rounded, sizeof a->rounded);
    if (order != 0)
        return order;
    if (a->calls > b->calls || a->calls < b->calls)
        return a->calls > b->calls ? -1 : 1;
    return a->index > b->index ? -1 : a->index < b->index; /* the last one, if lengths grow */
}

static int by_index(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Gives the calls of rare problems to the first one of the group. */
static void condense_group(entry *entries, size_t count)
{
    double calls = 0;
    for (size_t i = 0; i < count; i++)
        calls += entries[i].calls;
    for (size_t i = 1; i < count; i++) {
        if (entries[i].calls >= OWN_SHARE * calls)
            continue;
        entries[0].calls += entries[i].calls;
        entries[i].calls = 0;
    }
}

static void condense(entry *entries, size_t count)
{
    qsort(entries, count, sizeof *entries, compare);
    for (size_t first = 0, i = 1; i <= count; i++) {
        if (i < count && memcmp(&entries[i].rounded, &entries[first].rounded, sizeof entries->rounded) == 0)
            continue;
        condense_group(entries + first, i - first);
        first = i;
    }
    qsort(entries, count, sizeof *entries, by_index);
}

fa2_status fa2i_shapes_condense(fa2i_shapes *shapes, size_t *ret_dropped)
{
    fa2_status st = FA2_OK;
    fa2i_shapes kept = {0};
    size_t count = 0, next = 0;
    entry *entries = NULL;
    FA2_TRY(FA2I_NEW(entries, shapes->count));
    for (size_t i = 0; i < shapes->count; i++)
        if (shapes->calls[i] > 0)
            entries[count++] = (entry){fa2i_problem_rounded(&shapes->items[i]), i, shapes->calls[i]};
    condense(entries, count);
    for (size_t i = 0; i < shapes->count; i++) {
        const bool counted = next < count && entries[next].index == i;
        const double calls = counted ? entries[next++].calls : 0;
        if (!counted || calls > 0)
            FA2_TRY(fa2i_shapes_add(&kept, &shapes->items[i], calls));
    }
    *ret_dropped = shapes->count - kept.count;
    fa2i_shapes_done(shapes);
    *shapes = kept;
    kept = (fa2i_shapes){0};
done:
    fa2i_shapes_done(&kept);
    fa2i_free(entries);
    return st;
}
