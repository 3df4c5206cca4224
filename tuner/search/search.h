/*
 * Which of many contenders is the fastest, with few samples: probe, then interleaved halving.
 *
 * 1. Probe: every contender once to warm up, then once in earnest. If the best needs less than
 *    FA2I_SEARCH_SHORT_US, all sampling from here on, and a second probe, is in batches of
 *    FA2I_SEARCH_BATCH launches: single launches that short measure the event clock and launch
 * gaps. Whoever needs more than FA2I_SEARCH_PROBE_KEEP x the best is out.
 * 2. Rounds of 4, 8, 16, 32 samples of each survivor. A round is made of sweeps over all survivors,
 * each in a fresh random order, so that clock drift and temperature hit all alike. After each round
 * the best third by the median of all samples survives, never fewer than two, and always the
 * default. When the best is apart from all others that are left (its upper quartile below their
 * least sample, by medians by FA2I_SEARCH_APART) no more rounds are needed.
 * 3. Winner (fa2i_search_pick): least median. Those within 0.5 % of it whose [min, q3] overlaps its
 * own are tied; ties go to lower shared memory, then fewer registers, then text order. Nothing
 * slower than the default by median wins over it.
 *
 * Exact times (a software device's) need none of that: one launch each says all, and the best
 * third, as above, are the finalists.
 *
 * Pure apart from the sampler callback, so that it is tested by simulation. Deterministic for a
 * seed and the samples. Errors: FA2_E_MEMORY, and whatever the sampler returns. Not thread-safe.
 */
#ifndef FA2I_SEARCH_H
#define FA2I_SEARCH_H

#include "runtime/base/record.h"
#include "tuner/search/statistics.h"

enum { FA2I_SEARCH_BATCH = 20, FA2I_SEARCH_FIRST_ROUND = 4, FA2I_SEARCH_LAST_ROUND = 32 };
#define FA2I_SEARCH_SHORT_US   20.0
#define FA2I_SEARCH_PROBE_KEEP 1.25
#define FA2I_SEARCH_TIE        1.005
#define FA2I_SEARCH_APART      1.02

/* Samples that a contender can collect: all rounds. */
enum { FA2I_SEARCH_SAMPLES_MAX = 2 * FA2I_SEARCH_LAST_ROUND };

typedef struct fa2i_contender {
    const char *text; /* borrowed */
    int smem_bytes, registers;
    /* Results. */
    fa2i_outcome outcome; /* not OK: failed while being sampled, or marked by the caller */
    bool finalist;        /* was in the last round */
    double probe_us;
    size_t count;
    double samples[FA2I_SEARCH_SAMPLES_MAX]; /* us per launch, sorted */
    fa2i_statistics statistics;              /* of the samples; of the probe when there are none */
} fa2i_contender;

typedef struct fa2i_sample {
    uint32_t contender;
    bool taken;           /* false: sampling was stopped before */
    fa2i_outcome outcome; /* not OK: the contender is out */
    double us;            /* per launch */
} fa2i_sample;

typedef struct fa2i_search {
    /* Take all samples in this order; launches: back to back per sample. best_us: the least time
     * known, 0 at first. May stop early and leave the rest untaken; then the search ends. */
    fa2_status (*sample)(void *user, fa2i_sample *samples, size_t count, int launches,
                         double best_us);
    /* Asked before each round: no more rounds, please? The best so far may still win. May be NULL.
     */
    bool (*spent)(void *user);
    void *user;
    uint64_t seed;
    size_t default_index; /* the contender that is always a finalist */
    bool exact;           /* every launch takes the same time */
    /* Results. */
    bool stopped;   /* the sampler stopped */
    bool complete;  /* all rounds were run, or no more were needed */
    bool early;     /* the latter */
    int launches;   /* per sample: 1, or FA2I_SEARCH_BATCH */
    double best_us; /* least median so far */
} fa2i_search;

/* Contenders' results are zero at first. FA2_OK also when all of them failed. */
fa2_status fa2i_search_run(fa2i_search *search, fa2i_contender *contenders, size_t count);

/* The winner among contenders whose outcome is OK, finalists before all others; count: there is
 * none. */
size_t fa2i_search_pick(const fa2i_contender *contenders, size_t count, size_t default_index);

#endif
