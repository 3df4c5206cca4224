/*
 * The findings of a tuning: its problems, their kernels, and counts of the work.
 *
 * Each distinct variant of all problems is one fa2i_tune_kernel. Problems refer to it by index. So a kernel is compiled
 * and verified once, however many problems want it. The index is also its id in the worker process.
 *
 * Errors: FA2_E_MEMORY. Not thread-safe.
 */
#pragma once

#include "cache/cache.h"
#include "tuner/search/prediction.h"
#include "tuner/search/text_index.h"

typedef struct fa2i_tune_kernel {
    fa2i_kernel kernel; /* owned; has its image once a problem needs it */
    bool needed;        /* a problem that is not settled wants it */
    bool staged;        /* a problem that was taken into a stage wants it */
    bool known;         /* compiled, or found in the database: kernel.outcome is valid */
    bool verified;      /* verification is valid */
    bool unsettled;     /* verification is a hang that may be slowness. It counts in this run and is not stored */
    bool noted;         /* not known, and the database has a record that it was left out */
    bool refuted;       /* another card found it wrong: verification holds that verdict, and known is set when it is
                         * staged */
    int64_t withheld;   /* id of the problem whose new winner is stored together with this verification
                         * (fa2i_timing.whole). 0: nothing is withheld */
    fa2i_verification verification;
} fa2i_tune_kernel;

typedef enum fa2i_problem_state {
    FA2I_PROBLEM_OPEN,     /* to be measured; at the end of the run: not reached */
    FA2I_PROBLEM_SETTLED,  /* measured by an earlier run */
    FA2I_PROBLEM_MEASURED, /* measured by this run */
    FA2I_PROBLEM_UNSERVED, /* no family serves it on this SM */
    FA2I_PROBLEM_FAILED
} fa2i_problem_state;

typedef struct fa2i_tune_problem {
    fa2_problem problem;
    fa2i_problem_state state;
    int64_t id;
    size_t rank;                  /* index in the request's shapes */
    double calls;                 /* number of calls that a program makes; 1 if it is not known */
    double model_us;              /* of the cheapest candidate */
    double worth_us;              /* time that tuning is expected to save, over all calls */
    double calls_us;              /* time that all calls are expected to take */
    double about_s;               /* set by fa2i_tune_estimate: its time, without work that earlier problems do */
    bool fits;                    /* it fits into the budget, after the problems before it */
    size_t *candidates;           /* kernel indexes, cheapest first by the cost model; owned */
    fa2i_prediction *predictions; /* of each candidate, set by fa2i_tune_judge; owned */
    size_t count;
    bool staged;       /* it was taken into a stage */
    bool all_wanted;   /* none of the candidates that were kept could run, so all are wanted */
    char message[512]; /* why it is UNSERVED or FAILED */
    /* SETTLED and MEASURED: */
    fa2i_winner winner;
    char variant[FA2I_VARIANT_CHARS];
    bool complete;       /* all rounds were run */
    bool lost;           /* SETTLED, but the winner's code is missing and must be compiled again */
    size_t winner_place; /* if lost: index of the winner's kernel */
} fa2i_tune_problem;

typedef enum fa2i_phase {
    FA2I_PHASE_PLAN,
    FA2I_PHASE_COMPILE,
    FA2I_PHASE_VERIFY,
    FA2I_PHASE_TIME,
    FA2I_PHASE_COUNT
} fa2i_phase;

typedef struct fa2i_findings {
    fa2i_tune_kernel *kernels;
    size_t kernel_count, kernel_capacity;
    fa2i_text_index places;       /* finds the index in kernels by the text of the variant */
    fa2i_refutation *refutations; /* by other cards; owned */
    size_t refutation_count;
    fa2i_tune_problem *problems; /* in the order of the request's shapes, or by what tuning them is worth */
    size_t problem_count;
    double phase_s[FA2I_PHASE_COUNT];
    /* The work that was done, counted in kernels. outcomes also counts needed kernels that earlier runs compiled. */
    size_t compiled, reused, verified;
    size_t spared, uncompiled; /* measurements left out as hopeless; kernels among them that were not compiled */
    size_t early;              /* searches that ended before all rounds */
    size_t mended;             /* problems whose winner got its code again */
    size_t by_others;          /* problems that another tuner measured meanwhile */
    size_t timed, failed;      /* per problem: contenders, and contenders that failed while being timed */
    size_t outcomes[FA2I_OUTCOME_COUNT];
} fa2i_findings;

void fa2i_findings_done(fa2i_findings *found); /* zeroed objects are fine */

/* Finds a variant's kernel, or adds it. *ret_index: its index. */
fa2_status fa2i_findings_add(fa2i_findings *found, const fa2i_variant *variant, const fa2i_key *key, size_t *ret_index);

/* Count the problems of a state, and the settled ones whose winner's code must be compiled again. */
size_t fa2i_findings_count(const fa2i_findings *found, fa2i_problem_state state);
size_t fa2i_findings_count_lost(const fa2i_findings *found);

/* Marks the kernels that the open problems want. */
void fa2i_findings_mark_needed(fa2i_findings *found);

/* Returns how another card found a kernel wrong, or NULL. */
const fa2i_refutation *fa2i_findings_refutation(const fa2i_findings *found, const fa2i_key *key);

/* Says whether a kernel can run on this problem. It must have code, and must have passed its verification or not have
 * been verified yet. It must not spill, unless all candidates of the problem spill that are not refuted. */
bool fa2i_findings_usable(const fa2i_findings *found, const fa2i_tune_problem *problem, size_t kernel);
