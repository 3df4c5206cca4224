/*
 * The candidates of many problems at once, listed by several threads: a generator takes a tenth of a
 * second for some problems.
 *
 * Errors of one problem are that problem's. Not thread-safe itself.
 */
#ifndef FA2I_CANDIDATES_H
#define FA2I_CANDIDATES_H

#include <signal.h>
#include "runtime/base/record.h"

typedef struct fa2i_candidates {
    fa2_problem problem;    /* as the runtime's default rule asks about it: rounded */
    fa2_status status;      /* of fa2i_generator_candidates */
    char message[512];      /* where that is not FA2_OK */
    fa2i_variant *variants; /* owned */
    size_t count;
} fa2i_candidates;

/* *ret_lists, one for each problem in their order, belongs to the caller (fa2i_candidates_free). A
 * status other than FA2_OK: no generator, no memory. stop: as of fa2i_generator_create_stoppable. */
fa2_status fa2i_candidates_list(const fa2_problem *problems, size_t count, const fa2i_card *card,
                                int threads, const volatile sig_atomic_t *stop,
                                fa2i_candidates **ret_lists);
void fa2i_candidates_free(fa2i_candidates *lists, size_t count); /* NULL is fine */

/* The same as fa2i_generator_candidates gave; *ret_variants is borrowed from the list. */
fa2_status fa2i_candidates_get(const fa2i_candidates *list, const fa2i_variant **ret_variants,
                               size_t *ret_count);

#endif
