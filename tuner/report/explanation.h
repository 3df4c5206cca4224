/*
 * Why a problem gets its kernel on a card: what the runtime would decide, what is known about the kernel,
 * how the others are estimated, and what the generator rejected. For people (text) and programs
 * (JSON). Times are microseconds, sizes bytes. Not thread-safe.
 */
#ifndef FA2I_EXPLANATION_H
#define FA2I_EXPLANATION_H

#include <stdio.h>
#include "tuner/report/foresee.h"

typedef struct fa2i_explained {
    const fa2_problem *problem; /* borrowed */
    const fa2i_card *card;      /* the foresight's */
    fa2i_foreseen foreseen;     /* with fates */
    const char *kept;           /* what becomes of code that a call compiles; borrowed, the caller's to set */
    /* Lines "variant: why", of the problem that was asked about; owned. Those that failed their verification stand
     * first. */
    char *rejected;
} fa2i_explained;

/* On the card of the foresight. That the call would fail is in foreseen.status. On FA2_OK *ret_explained belongs to
 * the caller (fa2i_explained_done). */
fa2_status fa2i_explained_make(fa2i_foresight *foresight, const fa2_problem *problem,
                               fa2i_explained *ret_explained);
void fa2i_explained_done(fa2i_explained *explained); /* zeroed objects are fine */

/* Does no family serve the problem on the card's SM? */
bool fa2i_explained_is_unserved(const fa2i_explained *explained);

/* What an estimate rests on, in a word. */
const char *fa2i_explained_rests(fa2i_rests rests);

/* FA2_E_MEMORY. */
fa2_status fa2i_explained_print(const fa2i_explained *explained, FILE *out);

/* One JSON object, without a line end (explanation_json.c). */
void fa2i_explained_print_json(const fa2i_explained *e, FILE *out);

#endif
