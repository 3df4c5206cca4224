/*
 * A problem while it is timed (tune_time.c), and how its results get into the database (timing_rows.c).
 *
 * A run that is killed at any time can be continued. Results are stored as follows:
 * - A kernel's failure is stored at once. If the machine may be at fault, nothing is stored, and the problem fails for
 *   this run.
 * - The losers, the winner and its measurement are stored as one transaction when the search is complete. Candidates
 *   that cannot run are stored with them, because another run would find the same. So a problem with a settled time has
 *   a winner.
 * With --force, a problem that has a winner is measured wholly or not at all (whole). The stored rows stay until there
 * is a new winner, and then all of it is replaced at once, failures and verdicts included. If the problem gets no new
 * winner, verdicts that were found on it count in this run alone. They do not refute the winner that stays.
 */
#pragma once

#include "tuner/search/search.h"
#include "tuner/search/tune.h"

/* Facts about a contender that the search does not need. */
typedef struct fa2i_timing_entry {
    size_t kernel;
    bool recorded; /* its failure is in the database */
    bool checked;  /* it computes correctly on the problem's own tensors */
    double max_error;
} fa2i_timing_entry;

typedef struct fa2i_timing {
    fa2i_tune *tune;
    fa2i_tune_problem *problem;
    fa2i_contender *contenders;
    fa2i_timing_entry *entries; /* per contender */
    uint32_t *ids;              /* per contender: its kernel */
    fa2i_failure *failures;     /* per contender */
    size_t count;
    bool whole;   /* nothing is stored before there is a winner */
    size_t *left; /* kernels that are left out as hopeless */
    size_t left_count;
    size_t *unusable; /* kernels that cannot run on this problem, and are to be recorded as such */
    size_t unusable_count;
    fa2i_case c;
    fa2i_expected expected;
    void *output;
    fa2i_search search;
} fa2i_timing;

/* Records once that a contender failed on this problem. If whole, it is recorded with the winner. */
fa2_status fa2i_timing_put_failure(fa2i_timing *t, size_t i);

/* Records that a contender passed all verification cases and is wrong on this problem: it may win nowhere. If whole, it
 * is recorded with the winner. */
fa2_status fa2i_timing_refute(fa2i_timing *t, size_t i, fa2i_verification *verdict);

/* Records the unusable kernels if the problem has no other results. Does nothing if whole. */
fa2_status fa2i_timing_put_unusable(fa2i_timing *t);

/* Records the times of a search that was stopped, and the unusable kernels. Does nothing if whole. */
fa2_status fa2i_timing_put_times(fa2i_timing *t);

/* Records the winner, all times, what was left out, and the unusable kernels. The problem becomes MEASURED. */
fa2_status fa2i_timing_put_winner(fa2i_timing *t, size_t winner_index);
