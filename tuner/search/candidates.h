/*
 * The candidates of many problems at once and their keys, listed by several threads: a generator takes a
 * tenth of a second and more for a class of problems, and milliseconds for each problem and variant.
 *
 * Errors of one problem are that problem's. Not thread-safe itself.
 */
#ifndef FA2I_CANDIDATES_H
#define FA2I_CANDIDATES_H

#include <signal.h>
#include "runtime/base/record.h"
#include "runtime/cuda/compile.h"

/* What they are listed for, and by. */
typedef struct fa2i_candidates_for {
    const fa2i_card *card;
    fa2i_target target; /* its nvrtc is that of the keys: fa2i_compile_key_of */
    int threads;
    const volatile sig_atomic_t *stop; /* as of fa2i_generator_create_stoppable */
} fa2i_candidates_for;

typedef struct fa2i_candidates {
    fa2_problem problem;    /* as the runtime's default rule asks about it: fa2i_problem_asked */
    fa2_status status;      /* of fa2i_generator_candidates, and of their sources */
    char message[512];      /* where that is not FA2_OK */
    fa2i_variant *variants; /* owned, as are keys; as fa2i_generator_candidates gives them */
    fa2i_key *keys;         /* of each */
    size_t count;
} fa2i_candidates;

/* *ret_lists, one for each problem in their order, belongs to the caller (fa2i_candidates_free). A
 * status other than FA2_OK: no generator, no memory. */
fa2_status fa2i_candidates_list(const fa2_problem *problems, size_t count,
                                const fa2i_candidates_for *asked, fa2i_candidates **ret_lists);
void fa2i_candidates_free(fa2i_candidates *lists, size_t count); /* NULL is fine */

/* The list's status, with its message. */
fa2_status fa2i_candidates_check(const fa2i_candidates *list);

#endif
