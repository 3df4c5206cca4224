/*
 * Threads, each with a generator, first list candidates. The problems of a class are divided into units of a few
 * problems. One thread does a whole unit, so that its generator examines the class once, which takes longer than
 * everything else. Then the threads write the source of each variant once, for the keys. If there are few units and
 * many sources, more threads join them.
 */
#include "tuner/search/candidates.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/problem.h"
#include "runtime/lua/generator.h"
#include "runtime/ops/steps.h"
#include "tuner/judge/rows.h"
#include "tuner/search/text_index.h"

/* The least problems of a unit if its class has more. Examining a class takes as long as listing a dozen or two of its
 * problems. Idle threads may well repeat it. */
enum { UNIT_LEAST = 4 };

/* The least sources of a thread. Opening a generator takes as long as writing half a dozen sources. */
enum { SOURCES_LEAST = 16 };

/* A variant, which may be in several lists. */
typedef struct source {
    const fa2i_variant *variant; /* borrowed from the first of these lists */
    fa2i_key key;
    fa2_status status;
    char message[512]; /* if status is not FA2_OK */
} source;

typedef struct work {
    const fa2i_candidates_for *asked;
    fa2i_candidates *lists;
    size_t *units; /* the unit of each list, from 0 */
    size_t count, unit_count;
    source *sources;
    size_t source_count;
    fa2i_text_index places; /* finds sources by the texts of their variants */
    atomic_size_t next;     /* unit or source */
} work;

typedef struct share {
    work *work;
    fa2i_generator *generator; /* owned */
    fa2_status status;         /* of creating it */
    char message[512];
} share;

/* Each problem joins a unit of its class that is not full, or begins one. */
static fa2_status make_units(work *w)
{
    const size_t threads = w->asked->threads > 1 ? (size_t)w->asked->threads : 1;
    const size_t each = (w->count + threads - 1) / threads;
    const size_t most = each > UNIT_LEAST ? each : UNIT_LEAST;
    size_t *first = fa2i_alloc_array(w->count, sizeof *first); /* of each unit: one of its lists */
    size_t *filled = fa2i_alloc_array(w->count, sizeof *filled);
    for (size_t i = 0; first != NULL && filled != NULL && i < w->count; i++) {
        size_t unit = 0;
        while (unit < w->unit_count &&
               (filled[unit] == most || !fa2i_problem_same_class(&w->lists[first[unit]].problem, &w->lists[i].problem)))
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
    return done ? FA2_OK : fa2i_fail(FA2_E_MEMORY, "no memory for the classes of %zu problems", w->count);
}

/* Called in the thread itself, because it takes some hundredths of a second. */
static bool open_generator(share *own)
{
    own->status = fa2i_generator_create_stoppable(own->work->asked->stop, &own->generator);
    if (own->status != FA2_OK)
        snprintf(own->message, sizeof own->message, "%s", fa2_last_message());
    return own->status == FA2_OK;
}

static void *list_units(void *argument)
{
    share *own = argument;
    work *w = own->work;
    if (!open_generator(own))
        return NULL;
    for (size_t unit = atomic_fetch_add(&w->next, 1); unit < w->unit_count; unit = atomic_fetch_add(&w->next, 1))
        for (size_t i = 0; i < w->count; i++) {
            fa2i_candidates *list = &w->lists[i];
            if (w->units[i] != unit)
                continue;
            list->status = fa2i_generator_candidates(own->generator, &list->problem, w->asked->card, &list->variants,
                                                     &list->count);
            if (list->status != FA2_OK)
                snprintf(list->message, sizeof list->message, "%s", fa2_last_message());
        }
    return NULL;
}

static const char *source_text(const void *of, size_t place)
{
    return ((const source *)of)[place].variant->text;
}

static fa2_status add_source(work *w, const fa2i_variant *variant)
{
    if (fa2i_text_index_find(&w->places, w->sources, variant->text) != FA2I_NO_PLACE)
        return FA2_OK;
    w->sources[w->source_count].variant = variant;
    return fa2i_text_index_add(&w->places, w->sources, w->source_count++);
}

static fa2_status find_sources(work *w)
{
    size_t most = 0;
    for (size_t i = 0; i < w->count; i++)
        most += w->lists[i].count;
    fa2_status st = FA2I_NEW(w->sources, most);
    w->places.text_at = source_text;
    for (size_t i = 0; i < w->count; i++)
        for (size_t j = 0; j < w->lists[i].count && st == FA2_OK; j++)
            st = add_source(w, &w->lists[i].variants[j]);
    return st;
}

static void *write_sources(void *argument)
{
    share *own = argument;
    work *w = own->work;
    if (own->generator == NULL && !open_generator(own))
        return NULL;
    for (size_t i = atomic_fetch_add(&w->next, 1); i < w->source_count; i = atomic_fetch_add(&w->next, 1)) {
        source *s = &w->sources[i];
        char *text = NULL;
        s->status = fa2i_generator_source(own->generator, s->variant->text, &text);
        if (s->status == FA2_OK)
            fa2i_compile_key_of(s->variant, text, &w->asked->target, w->asked->target.nvrtc, &s->key);
        else
            snprintf(s->message, sizeof s->message, "%s", fa2_last_message());
        fa2i_free(text);
    }
    return NULL;
}

/* Gives each variant of a list its key. Fails if the source of a variant could not be written. */
static fa2_status hand_out_keys(const work *w, fa2i_candidates *list)
{
    list->keys = fa2i_alloc_array(list->count, sizeof *list->keys);
    if (list->keys == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu keys", list->count);
    for (size_t i = 0; i < list->count; i++) {
        const source *s = &w->sources[fa2i_text_index_find(&w->places, w->sources, list->variants[i].text)];
        list->keys[i] = s->key;
        if (s->status == FA2_OK || list->status != FA2_OK)
            continue;
        list->status = s->status;
        snprintf(list->message, sizeof list->message, "%s", s->message);
    }
    return FA2_OK;
}

/* Returns the failure of the first share that could not open its generator. */
static fa2_status run_shares(void *(*run)(void *), share *shares, size_t count)
{
    fa2_status st = FA2_OK;
    atomic_store(&shares->work->next, 0);
    fa2i_run_parts(run, shares, sizeof *shares, count);
    for (size_t i = 0; i < count && st == FA2_OK; i++)
        if (shares[i].status != FA2_OK)
            st = fa2i_fail(shares[i].status, "%s", shares[i].message);
    return st;
}

static fa2_status list_and_key(work *w, share *shares)
{
    fa2_status st = FA2_OK;
    const size_t listing = fa2i_count_parts(w->asked->threads, w->unit_count, 1);
    FA2_TRY(run_shares(list_units, shares, listing));
    FA2_TRY(find_sources(w));
    const size_t writing = fa2i_count_parts(w->asked->threads, w->source_count / SOURCES_LEAST, 1);
    FA2_TRY(run_shares(write_sources, shares, writing > listing ? writing : listing));
    for (size_t i = 0; i < w->count; i++)
        FA2_TRY(hand_out_keys(w, &w->lists[i]));
done:
    return st;
}

fa2_status fa2i_candidates_list(const fa2_problem *problems, size_t count, const fa2i_candidates_for *asked,
                                fa2i_candidates **ret_lists)
{
    fa2_status st = FA2_OK;
    share shares[FA2I_PARTS_MAX] = {{0}};
    work w = {.asked = asked,
              .count = count,
              .lists = fa2i_alloc_array(count, sizeof *w.lists),
              .units = fa2i_alloc_array(count, sizeof *w.units)};

    if (w.lists == NULL || w.units == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for the candidates of %zu problems", count));
    for (size_t i = 0; i < count; i++)
        w.lists[i].problem = fa2i_problem_asked(&problems[i], asked->card->sm_count);
    FA2_TRY(make_units(&w));
    for (size_t i = 0; i < FA2I_PARTS_MAX; i++)
        shares[i].work = &w;
    FA2_TRY(list_and_key(&w, shares));
    *ret_lists = w.lists;
    w.lists = NULL; /* the caller owns it now */
done:
    for (size_t i = 0; i < FA2I_PARTS_MAX; i++)
        fa2i_generator_destroy(shares[i].generator);
    fa2i_candidates_free(w.lists, count);
    fa2i_free(w.units);
    fa2i_free(w.sources);
    fa2i_text_index_done(&w.places);
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
