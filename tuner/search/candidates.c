/*
 * The problems of a class make units of some problems each, and a unit is one thread's: a generator
 * looks at a class once, which takes longer than all else, and writes the source of each variant of a
 * unit once. Each thread has a generator and takes the next unit that nobody has.
 */
#include "tuner/search/candidates.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/lua/generator.h"
#include "tuner/judge/rows.h"

/* Looking at a class takes about as long as listing so many of its problems. */
enum { UNIT_MOST = 16 };

typedef struct work {
    const fa2i_candidates_for *asked;
    fa2i_candidates *lists;
    size_t *units; /* of each list, the unit; from 0 */
    size_t count, unit_count;
    atomic_size_t next; /* unit */
} work;

typedef struct share {
    work *work;
    fa2i_generator *generator; /* owned */
} share;

/* Each problem joins a unit of its class that is not full, or begins one. */
static fa2_status make_units(work *w)
{
    size_t *first = fa2i_alloc_array(w->count, sizeof *first); /* of each unit, a list of it */
    size_t *filled = fa2i_alloc_array(w->count, sizeof *filled);
    for (size_t i = 0; first != NULL && filled != NULL && i < w->count; i++) {
        size_t unit = 0;
        while (unit < w->unit_count &&
               (filled[unit] == UNIT_MOST ||
                !fa2i_problem_same_class(&w->lists[first[unit]].problem, &w->lists[i].problem)))
            unit++;
        if (unit == w->unit_count) {
            first[unit] = i;
            w->unit_count++;
        }
        filled[unit]++;
        w->units[i] = unit;
    }
    const bool done = first != NULL && filled != NULL;
    fa2i_free(first);
    fa2i_free(filled);
    return done ? FA2_OK
                : fa2i_fail(FA2_E_MEMORY, "no memory for the classes of %zu problems", w->count);
}

static fa2_status find_key(const share *own, const fa2i_variant *variant, fa2i_key *ret_key)
{
    const fa2i_candidates_for *asked = own->work->asked;
    char *source = NULL;
    const fa2_status st = fa2i_generator_source(own->generator, variant->text, &source);
    if (st == FA2_OK)
        fa2i_compile_key_of(variant, source, &asked->target, asked->nvrtc, ret_key);
    fa2i_free(source);
    return st;
}

/* The key of a variant that a list of the same unit before this one has; NULL: none has it. */
static const fa2i_key *find_known(const work *w, size_t index, const char *text)
{
    for (size_t i = 0; i < index; i++) {
        const fa2i_candidates *list = &w->lists[i];
        for (size_t j = 0; w->units[i] == w->units[index] && j < list->count; j++)
            if (strcmp(list->variants[j].text, text) == 0)
                return &list->keys[j];
    }
    return NULL;
}

static fa2_status find_keys(const share *own, size_t index)
{
    fa2_status st = FA2_OK;
    fa2i_candidates *list = &own->work->lists[index];
    list->keys = fa2i_alloc_array(list->count, sizeof *list->keys);
    if (list->keys == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu keys", list->count);
    for (size_t i = 0; st == FA2_OK && i < list->count; i++) {
        const fa2i_key *known = find_known(own->work, index, list->variants[i].text);
        if (known != NULL)
            list->keys[i] = *known;
        else
            st = find_key(own, &list->variants[i], &list->keys[i]);
    }
    return st;
}

static void list_one(const share *own, size_t index)
{
    fa2i_candidates *list = &own->work->lists[index];
    list->status = fa2i_generator_candidates(own->generator, &list->problem, own->work->asked->card,
                                             &list->variants, &list->count);
    if (list->status == FA2_OK)
        list->status = find_keys(own, index);
    if (list->status == FA2_OK)
        return;
    list->count = 0; /* of those that have keys */
    snprintf(list->message, sizeof list->message, "%s", fa2_last_message());
}

static void *list_share(void *argument)
{
    share *own = argument;
    work *w = own->work;
    for (size_t unit = atomic_fetch_add(&w->next, 1); unit < w->unit_count;
         unit = atomic_fetch_add(&w->next, 1))
        for (size_t i = 0; i < w->count; i++)
            if (w->units[i] == unit)
                list_one(own, i);
    return NULL;
}

fa2_status fa2i_candidates_list(const fa2_problem *problems, size_t count,
                                const fa2i_candidates_for *asked, fa2i_candidates **ret_lists)
{
    fa2_status st = FA2_OK;
    share shares[FA2I_PARTS_MAX] = {{0}};
    size_t part_count = 0;
    work w = {.asked = asked,
              .count = count,
              .lists = fa2i_alloc_array(count, sizeof *w.lists),
              .units = fa2i_alloc_array(count, sizeof *w.units)};

    if (w.lists == NULL || w.units == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for the candidates of %zu problems", count));
    for (size_t i = 0; i < count; i++)
        w.lists[i].problem = fa2i_problem_rounded(&problems[i]);
    FA2_TRY(make_units(&w));
    part_count = fa2i_count_parts(asked->threads, w.unit_count, 1);
    for (size_t i = 0; i < part_count; i++) {
        shares[i] = (share){.work = &w};
        FA2_TRY(fa2i_generator_create_stoppable(asked->stop, &shares[i].generator));
    }
    fa2i_run_parts(list_share, shares, sizeof *shares, part_count);
    *ret_lists = w.lists;
    w.lists = NULL; /* the caller's now */
done:
    for (size_t i = 0; i < part_count; i++)
        fa2i_generator_destroy(shares[i].generator);
    fa2i_candidates_free(w.lists, count);
    fa2i_free(w.units);
    return st;
}

void fa2i_candidates_free(fa2i_candidates *lists, size_t count)
{
    for (size_t i = 0; lists != NULL && i < count; i++) {
        fa2i_free(lists[i].variants);
        fa2i_free(lists[i].keys);
    }
    fa2i_free(lists);
}

fa2_status fa2i_candidates_check(const fa2i_candidates *list)
{
    return list->status == FA2_OK ? FA2_OK : fa2i_fail(list->status, "%s", list->message);
}
