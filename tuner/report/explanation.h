/*
 * Why a problem gets its kernel on a card: the chooser's decision, what is known about the kernel,
 * how the cost model sees the candidates, and what it rejected. For people (text) and programs
 * (JSON). Times are microseconds, sizes bytes. Not thread-safe.
 */
#ifndef FA2I_EXPLANATION_H
#define FA2I_EXPLANATION_H

#include <stdio.h>
#include "runtime/plan/choose.h"
#include "runtime/lua/generator.h"

typedef struct fa2i_explained {
    const fa2_problem *problem; /* borrowed, as is the card */
    const fa2i_card *card;
    fa2i_decision decision;
    fa2i_variant variant; /* the kernel; cost_us is the model's time for this problem */
    bool compiled;        /* the database has a record of it: the next two are known */
    int registers, spill_bytes;
    fa2_problem asked;        /* what the model was asked about: fa2i_problem_rounded */
    fa2i_variant *candidates; /* of that problem, cheapest first by the model; owned */
    size_t candidate_count;
    char *rejected; /* lines "variant: why"; owned */
} fa2i_explained;

/* cache may be NULL. FA2_E_UNSUPPORTED when no family serves the problem on the card's SM. On
 * FA2_OK *ret_explained belongs to the caller (fa2i_explained_done). */
fa2_status fa2i_explained_make(fa2i_generator *generator, fa2i_cache *cache, const fa2i_card *card,
                               const fa2_problem *problem, fa2i_explained *ret_explained);
void fa2i_explained_done(fa2i_explained *explained); /* zeroed objects are fine */

/* FA2_E_MEMORY. */
fa2_status fa2i_explained_print(const fa2i_explained *explained, FILE *out);

/* One JSON object, without a line end. */
void fa2i_explained_print_json(const fa2i_explained *explained, FILE *out);

#endif
