/*
 * Each thread has a generator and takes the next problem that nobody has.
 */
#include "tuner/search/candidates.h"

#include <stdio.h>
#include <stdatomic.h>
#include "runtime/base/alloc.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/lua/generator.h"
#include "tuner/judge/rows.h"

typedef struct share {
    const fa2i_card *card;
    fa2i_candidates *lists;
    size_t count;
    atomic_size_t *next;
    fa2i_generator *generator; /* owned */
} share;

static void *list_share(void *argument)
{
    share *own = argument;
    for (size_t i = atomic_fetch_add(own->next, 1); i < own->count;
         i = atomic_fetch_add(own->next, 1)) {
        fa2i_candidates *list = &own->lists[i];
        list->status = fa2i_generator_candidates(own->generator, &list->problem, own->card,
                                                 &list->variants, &list->count);
        if (list->status != FA2_OK)
            snprintf(list->message, sizeof list->message, "%s", fa2_last_message());
    }
    return NULL;
}

fa2_status fa2i_candidates_list(const fa2_problem *problems, size_t count, const fa2i_card *card,
                                int threads, const volatile sig_atomic_t *stop,
                                fa2i_candidates **ret_lists)
{
    fa2_status st = FA2_OK;
    share shares[FA2I_PARTS_MAX] = {{0}};
    const size_t part_count = fa2i_count_parts(threads, count, 1);
    atomic_size_t next = 0;
    fa2i_candidates *lists = fa2i_alloc_array(count, sizeof *lists);

    if (lists == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for the candidates of %zu problems", count);
    for (size_t i = 0; i < count; i++)
        lists[i].problem = fa2i_problem_rounded(&problems[i]);
    for (size_t i = 0; i < part_count; i++) {
        shares[i] = (share){.card = card, .lists = lists, .count = count, .next = &next};
        FA2_TRY(fa2i_generator_create_stoppable(stop, &shares[i].generator));
    }
    fa2i_run_parts(list_share, shares, sizeof *shares, part_count);
    *ret_lists = lists;
    lists = NULL; /* the caller's now */
done:
    for (size_t i = 0; i < part_count; i++)
        fa2i_generator_destroy(shares[i].generator);
    fa2i_candidates_free(lists, count);
    return st;
}

void fa2i_candidates_free(fa2i_candidates *lists, size_t count)
{
    for (size_t i = 0; lists != NULL && i < count; i++)
        fa2i_free(lists[i].variants);
    fa2i_free(lists);
}

fa2_status fa2i_candidates_get(const fa2i_candidates *list, const fa2i_variant **ret_variants,
                               size_t *ret_count)
{
    if (list->status != FA2_OK)
        return fa2i_fail(list->status, "%s", list->message);
    *ret_variants = list->variants;
    *ret_count = list->count;
    return FA2_OK;
}
