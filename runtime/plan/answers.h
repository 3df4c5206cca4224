/*
 * Answers of the cost model: which kernel serves all problems of a step (runtime/ops/steps.h).
 *
 * The table holds at most FA2I_ANSWERS_KEPT answers. After that, a new answer replaces the least recently used one. The
 * cost of a look-up does not depend on the number of answers.
 *
 * Not thread-safe: the planner's caller holds the lock. Errors: FA2_E_MEMORY, and the table is unchanged. Ownership:
 * the table owns its answers. A pointer to one is valid until the next answer is added.
 */
#pragma once

#include "runtime/plan/plan.h"

enum { FA2I_ANSWERS_KEPT = 4096 };

typedef struct fa2i_class_answer {
    /* The question. These members together are the key. */
    fa2_problem asked; /* fa2i_planner_asked */
    bool unmapped;     /* for calls that need a kernel without tensor maps (planner.h) */
    uint64_t reading;  /* the reading of the database that the answer is based on (fa2i_class.reading) */

    const fa2i_slot *slot;
    fa2i_origin origin;
    fa2i_decision decision;
    char *passed; /* variants of better kernels that cannot be used, one a line; owned */
    size_t tried;
    bool knows_runner_up; /* false until an explanation asks for it */
    fa2i_runner_up runner_up;
    bool for_step; /* an earlier process stored it, for all problems of the step (notes.c) */

    struct fa2i_class_answer *next;          /* next in the hash chain */
    struct fa2i_class_answer *newer, *older; /* neighbours in the list by last use */
} fa2i_class_answer;

typedef struct fa2i_answers {
    fa2i_class_answer **places;
    size_t count;
    fa2i_class_answer *newest, *oldest;
} fa2i_answers; /* zeroed: empty */

/* Returns the answer to exactly this question, or NULL. */
fa2i_class_answer *fa2i_answers_find(fa2i_answers *answers, const fa2_problem *asked, bool unmapped, uint64_t reading);

/* Adds an answer to a question that has none yet. fa2i_alloc made it. On FA2_OK the table owns it. */
fa2_status fa2i_answers_add(fa2i_answers *answers, fa2i_class_answer *answer);

void fa2i_answer_free(fa2i_class_answer *answer); /* NULL is fine */
void fa2i_answers_done(fa2i_answers *answers);    /* zeroed objects are fine */
