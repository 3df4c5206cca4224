/*
 * The list. A hash table finds repeated problems, because files may have hundreds of thousands of rows.
 */
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/text.h"
#include "tuner/input/shapes.h"

/* ---- the list ---- */

/* FNV-1a over the words. */
static size_t hash_of(const fa2_problem *problem)
{
    uint32_t words[sizeof *problem / sizeof(uint32_t)];
    uint64_t hash = 0xcbf29ce484222325u;
    memcpy(words, problem, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * 0x100000001b3u;
    return (size_t)(hash ^ hash >> 32);
}

/* Finds the slot that holds, or will hold, the problem's index. */
static uint32_t *slot_of(const fa2i_shapes *shapes, const fa2_problem *problem)
{
    for (size_t i = hash_of(problem);; i++) {
        uint32_t *slot = &shapes->slots[i % shapes->slot_count];
        if (*slot == 0 || memcmp(&shapes->items[*slot - 1], problem, sizeof *problem) == 0)
            return slot;
    }
}

/* Makes room for one more. The table is at most half full. */
static fa2_status reserve(fa2i_shapes *shapes)
{
    size_t capacity = shapes->capacity, same = shapes->capacity;
    fa2_status st = FA2_OK;
    uint32_t *slots = NULL;
    if (shapes->count < capacity)
        return FA2_OK;
    FA2_TRY(FA2I_GROW(shapes->items, capacity + 1, capacity));
    FA2_TRY(FA2I_GROW(shapes->calls, same + 1, same));
    FA2_TRY(FA2I_NEW(slots, 2 * capacity));
    fa2i_free(shapes->slots);
    shapes->slots = slots;
    shapes->slot_count = 2 * capacity;
    shapes->capacity = capacity;
    for (size_t i = 0; i < shapes->count; i++)
        *slot_of(shapes, &shapes->items[i]) = (uint32_t)(i + 1);
done:
    return st;
}

fa2_status fa2i_shapes_add(fa2i_shapes *shapes, const fa2_problem *problem, double calls)
{
    const fa2_status st = reserve(shapes);
    if (st != FA2_OK)
        return st;
    uint32_t *slot = slot_of(shapes, problem);
    if (*slot == 0) {
        shapes->calls[shapes->count] = 0;
        shapes->items[shapes->count++] = *problem;
        *slot = (uint32_t)shapes->count;
    }
    shapes->calls[*slot - 1] += calls;
    return FA2_OK;
}

/* Adds the problem for another operation, if that supports all its features. */
static fa2_status add_for_op(fa2i_shapes *shapes, const fa2_problem *problem, double calls, fa2_op op)
{
    fa2_problem other = *problem;
    other.op = op;
    if (fa2i_problem_check(&other) == FA2_OK)
        return fa2i_shapes_add(shapes, &other, calls);
    return fa2i_fail(FA2_E_INVALID, "%s: %s", fa2i_problem_shape(problem).text, fa2_last_message());
}

fa2_status fa2i_shapes_add_for_ops(fa2i_shapes *shapes, const fa2_problem *problem, double calls)
{
    fa2_status st = shapes->ops == 0 ? fa2i_shapes_add(shapes, problem, calls) : FA2_OK;
    for (int op = 0; st == FA2_OK && shapes->ops >> op != 0; op++)
        if (shapes->ops >> op & 1u)
            st = add_for_op(shapes, problem, calls, (fa2_op)op);
    return st;
}

void fa2i_shapes_write(const fa2i_shapes *shapes, FILE *out)
{
    fputs("calls", out);
    for (int field = 0; field < FA2I_FIELD_COUNT; field++)
        fprintf(out, ",%s", fa2i_fields[field].name);
    for (size_t i = 0; i < shapes->count; i++) {
        fprintf(out, "\n%.0f", shapes->calls[i]);
        for (int field = 0; field < FA2I_FIELD_COUNT; field++) {
            char value[FA2I_VALUE_CHARS];
            fprintf(out, ",%s", fa2i_field_text(&shapes->items[i], field, value));
        }
    }
    fputc('\n', out);
}

void fa2i_shapes_done(fa2i_shapes *shapes)
{
    fa2i_free(shapes->items);
    fa2i_free(shapes->calls);
    fa2i_free(shapes->slots);
    *shapes = (fa2i_shapes){0};
}
