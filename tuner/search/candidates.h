/*
 * Lists the candidates of many problems and their keys, with several threads. A generator takes a tenth of a second or
 * more for a class of problems, and milliseconds for each problem and variant.
 *
 * An error of one problem concerns that problem alone. Not thread-safe itself.
 */
#pragma once

#include <signal.h>
#include "runtime/base/record.h"
#include "runtime/cuda/compile.h"

/* The card, the compiler and the threads for which candidates are listed. */
typedef struct fa2i_candidates_for {
    const fa2i_card *card;
    fa2i_target target; /* its nvrtc goes into the keys: fa2i_compile_key_of */
    int threads;
    const volatile sig_atomic_t *stop; /* see fa2i_generator_create_stoppable */
} fa2i_candidates_for;

typedef struct fa2i_candidates {
    fa2_problem problem;    /* as the runtime's default rule asks about it: fa2i_problem_asked */
    fa2_status status;      /* of fa2i_generator_candidates, and of writing their sources */
    char message[512];      /* if status is not FA2_OK */
    fa2i_variant *variants; /* as fa2i_generator_candidates gives them; owned, and so is keys */
    fa2i_key *keys;         /* of each variant */
    size_t count;
} fa2i_candidates;

/* *ret_lists has one list for each problem, in their order, and belongs to the caller (fa2i_candidates_free). A status
 * other than FA2_OK means: no generator, or no memory. */
fa2_status fa2i_candidates_list(const fa2_problem *problems, size_t count, const fa2i_candidates_for *asked,
                                fa2i_candidates **ret_lists);
void fa2i_candidates_free(fa2i_candidates *lists, size_t count); /* NULL is fine */

/* Returns the list's status, and sets its message. */
fa2_status fa2i_candidates_check(const fa2i_candidates *list);
