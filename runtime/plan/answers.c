/*
 * Each answer is in a hash chain and in a list ordered by last use.
 */
#include "runtime/plan/answers.h"

#include <assert.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/problem_hash.h"

enum { PLACE_BITS = 12, PLACES = 1 << PLACE_BITS };

static fa2i_class_answer **place_of(const fa2i_answers *answers, const fa2_problem *asked)
{
    return &answers->places[fa2i_problem_hash(asked) >> (64 - PLACE_BITS)];
}

/* ---- the list by age ---- */

static void take_from_list(fa2i_answers *answers, const fa2i_class_answer *answer)
{
    *(answer->newer != NULL ? &answer->newer->older : &answers->newest) = answer->older;
    *(answer->older != NULL ? &answer->older->newer : &answers->oldest) = answer->newer;
}

static void put_first(fa2i_answers *answers, fa2i_class_answer *answer)
{
    answer->newer = NULL;
    answer->older = answers->newest;
    *(answers->newest != NULL ? &answers->newest->newer : &answers->oldest) = answer;
    answers->newest = answer;
}

/* ---- the table ---- */

void fa2i_answer_free(fa2i_class_answer *answer)
{
    if (answer == NULL)
        return;
    fa2i_free(answer->passed);
    fa2i_free(answer);
}

static void drop(fa2i_answers *answers, fa2i_class_answer *answer)
{
    fa2i_class_answer **at = place_of(answers, &answer->asked);
    while (*at != answer)
        at = &(*at)->next;
    *at = answer->next;
    take_from_list(answers, answer);
    answers->count--;
    fa2i_answer_free(answer);
}

fa2i_class_answer *fa2i_answers_find(fa2i_answers *answers, const fa2_problem *asked, bool unmapped, uint64_t reading)
{
    fa2i_class_answer *found = answers->places == NULL ? NULL : *place_of(answers, asked);
    while (found != NULL && (found->unmapped != unmapped || found->reading != reading ||
                             memcmp(&found->asked, asked, sizeof *asked) != 0))
        found = found->next;
    if (found != NULL) {
        take_from_list(answers, found);
        put_first(answers, found);
    }
    return found;
}

fa2_status fa2i_answers_add(fa2i_answers *answers, fa2i_class_answer *answer)
{
    assert(fa2i_answers_find(answers, &answer->asked, answer->unmapped, answer->reading) == NULL);
    if (answers->places == NULL)
        answers->places = fa2i_alloc_array(PLACES, sizeof *answers->places);
    if (answers->places == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for the answers of the cost model");
    if (answers->count == FA2I_ANSWERS_KEPT)
        drop(answers, answers->oldest);
    fa2i_class_answer **at = place_of(answers, &answer->asked);
    answer->next = *at;
    *at = answer;
    put_first(answers, answer);
    answers->count++;
    return FA2_OK;
}

void fa2i_answers_done(fa2i_answers *answers)
{
    while (answers->oldest != NULL)
        drop(answers, answers->oldest);
    fa2i_free(answers->places);
    *answers = (fa2i_answers){0};
}
