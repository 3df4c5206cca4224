/*
 * Explains why a problem gets its kernel on a card: the runtime's decision, the facts about the kernel, the estimates
 * for the others, and what the generator rejected. As text, and as JSON for programs. Times are microseconds, sizes
 * bytes. Not thread-safe.
 */
#pragma once

#include <stdio.h>
#include "tuner/report/predict.h"

typedef struct fa2i_explained {
    const fa2_problem *problem; /* borrowed */
    const fa2i_card *card;      /* borrowed from the predictor */
    fa2i_predicted predicted;   /* with fates */
    const char *kept;           /* says what happens to code that a call compiles; borrowed; the caller sets it */
    /* Lines "variant: why" for the problem that was asked; owned. Variants that failed their verification come
     * first. */
    char *rejected;
} fa2i_explained;

/* Explains a problem on the card of the predictor. If the call would fail, predicted.status says so. On FA2_OK the
 * caller owns *ret_explained (fa2i_explained_done). */
fa2_status fa2i_explained_make(fa2i_predictor *predictor, const fa2_problem *problem, fa2i_explained *ret_explained);
void fa2i_explained_done(fa2i_explained *explained); /* accepts zeroed objects */

/* Says whether no family serves the problem on the card's SM. */
bool fa2i_explained_is_unserved(const fa2i_explained *explained);

/* Returns a word for the basis of an estimate. */
const char *fa2i_explained_rests(fa2i_rests rests);

/* Writes a clause about the origin of the choice, such as "tuned for PROBLEM on DEVICE". If only the cost model chose,
 * it says so. */
enum { FA2I_REASON_CHARS = FA2I_PROBLEM_CHARS + 256 };
void fa2i_explained_reason(const fa2i_explained *explained, char out[FA2I_REASON_CHARS]);

/* Prints the text. Returns FA2_E_MEMORY. */
fa2_status fa2i_explained_print(const fa2i_explained *explained, FILE *out);

/* Prints one JSON object without a line end (explanation_json.c). */
void fa2i_explained_print_json(const fa2i_explained *e, FILE *out);
