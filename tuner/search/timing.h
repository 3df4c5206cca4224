/*
 * A problem while it is timed (tune_time.c), and what comes of it into the database (timing_rows.c).
 *
 * What is settled when (so that a run that is killed anywhere can be continued):
 * - a failure of the kernel: at once; what may be the machine's fault is stored nowhere, and the
 *   problem fails for this run;
 * - losers, the winner's own measurement and the winner: when the search is complete, as one, with the
 *   candidates that cannot run, of which another run would say the same. A problem with a settled time
 *   therefore has a winner.
 * With --force a problem that has a winner is measured wholly or not at all: what was stored stays as it is until
 * there is a new winner, and goes then, failures and verdicts too (whole), as one. A verdict that was found on a
 * problem that gets no new winner is of this run alone: the winner that stays is not refuted by it.
 */
#ifndef FA2I_TIMING_H
#define FA2I_TIMING_H

#include "tuner/search/search.h"
#include "tuner/search/tune.h"

/* One contender more than the search knows of it. */
typedef struct fa2i_timing_entry {
    size_t kernel;
    bool recorded; /* its failure is in the database */
    bool checked;  /* right on the problem's own tensors */
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
    bool whole;   /* nothing is stored before the winner */
    size_t *left; /* kernels that are left out as hopeless */
    size_t left_count;
    size_t *unusable; /* kernels that cannot run on this problem, of which the database is to be told */
    size_t unusable_count;
    fa2i_case c;
    fa2i_expected expected;
    void *output;
    fa2i_search search;
} fa2i_timing;

/* Record, once, that a contender failed on this problem; if whole, with the winner. */
fa2_status fa2i_timing_put_failure(fa2i_timing *t, size_t i);

/* Right in all cases of the verification, and wrong on a problem: it may win nowhere. If whole, the database is told
 * with the winner. */
fa2_status fa2i_timing_refute(fa2i_timing *t, size_t i, fa2i_verification *verdict);

/* What is to be recorded of unusable kernels, where nothing else came of the problem; nothing if whole. */
fa2_status fa2i_timing_put_unusable(fa2i_timing *t);

/* The times that there are, of a search that was stopped; and what is unusable. Nothing if whole. */
fa2_status fa2i_timing_put_times(fa2i_timing *t);

/* The winner, all times, what was left out and what is unusable; the problem is MEASURED. */
fa2_status fa2i_timing_put_winner(fa2i_timing *t, size_t winner_index);

#endif
