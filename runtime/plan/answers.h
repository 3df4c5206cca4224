/*
 * Answers of the cost model: which kernel is taken for all problems of a step (runtime/ops/steps.h).
 *
 * A table with a limit, FA2I_ANSWERS_KEPT. Beyond it a new answer replaces the one that was used longest ago. The cost
 * of a look-up does not depend on their number.
 *
 * Not thread-safe: the planner's caller holds the lock. Errors: FA2_E_MEMORY, and the table is as before.
 * Ownership. The table owns its answers. A pointer to one is valid until the next answer is added.
 */
#ifndef FA2I_ANSWERS_H
#define FA2I_ANSWERS_H

#include "runtime/plan/plan.h"

enum { FA2I_ANSWERS_KEPT = 4096 };

typedef struct fa2i_class_answer {
    /* The question; together the key. */
    fa2_problem asked; /* fa2i_planner_asked */
    bool unmapped;     /* for calls that need a kernel without tensor maps: planner.h */
    uint64_t reading;  /* reading of the database that it rests on: fa2i_class.reading */

    const fa2i_slot *slot;
    fa2i_origin origin;
    fa2i_decision decision;
    char *passed; /* texts of better kernels that cannot be used, a line each; owned */
    size_t tried;
    bool knows_runner_up; /* only an explanation asks for it */
    fa2i_runner_up runner_up;
    bool for_step; /* stored by an earlier process, for all problems of the step: planner_notes.c */

    struct fa2i_class_answer *next;          /* in the same chain */
    struct fa2i_class_answer *newer, *older; /* by the last use */
} fa2i_class_answer;

typedef struct fa2i_answers {
    fa2i_class_answer **places;
    size_t count;
    fa2i_class_answer *newest, *oldest;
} fa2i_answers; /* zeroed: empty */

/* The answer to this very question, or NULL. */
fa2i_class_answer *fa2i_answers_find(fa2i_answers *answers, const fa2_problem *asked, bool unmapped,
                                     uint64_t reading);

/* Add an answer to a question that has none yet. It was made by fa2i_alloc, and belongs to the table on FA2_OK. */
fa2_status fa2i_answers_add(fa2i_answers *answers, fa2i_class_answer *answer);

void fa2i_answer_free(fa2i_class_answer *answer); /* NULL is fine */
void fa2i_answers_done(fa2i_answers *answers);    /* zeroed objects are fine */

#endif
