/*
 * Finds the fastest of many contenders with few samples: a probe, then interleaved halving.
 *
 * 1. Probe: each contender runs once to warm up, and once more to be timed. If the best needs less than
 * FA2I_SEARCH_SHORT_US, a second probe and all later samples use batches of FA2I_SEARCH_BATCH launches. A single launch
 * that short would measure the event clock and launch gaps. A contender that needs more than FA2I_SEARCH_PROBE_KEEP x
 * the best is out. 2. Rounds of 4, 8, 16 and 32 samples of each survivor. A round consists of sweeps over all
 * survivors, each in a new random order, so that clock drift and temperature affect all alike. After each round the
 * best third by the median of all samples survives, at least two, and always the default. The rounds end early when the
 * best is clearly faster than all others. Then its upper quartile is below their least sample, and their medians are at
 * least FA2I_SEARCH_APART x its own. 3. Winner (fa2i_search_pick): the least median. Contenders within 0.5 % of it
 * whose [min, q3] overlaps its own are tied. Ties go to less shared memory, then fewer registers, then text order. No
 * contender with a greater median than the default wins over it.
 *
 * Exact times (of a software device) need one launch each, and the best third, as above, are the finalists.
 *
 * Pure apart from the sampler callback, so that tests can simulate it. The result depends on the seed and the samples
 * alone. Errors: FA2_E_MEMORY, and any status of the sampler. Not thread-safe.
 */
#pragma once

#include "runtime/base/record.h"
#include "tuner/search/statistics.h"
#include "tuner/worker/protocol.h"

enum { FA2I_SEARCH_BATCH = 20, FA2I_SEARCH_FIRST_ROUND = 4, FA2I_SEARCH_LAST_ROUND = 32 };
#define FA2I_SEARCH_SHORT_US   20.0
#define FA2I_SEARCH_PROBE_KEEP 1.25
#define FA2I_SEARCH_TIE        1.005
#define FA2I_SEARCH_APART      1.02

/* The seed of test data and of the order of samples: equal runs take equal samples. */
enum { FA2I_TUNE_SEED = 0xfa2 };

/* The most samples that a contender can collect in all rounds. */
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
    fa2i_statistics statistics;              /* of the samples, or of the probe if there are none */
} fa2i_contender;

typedef struct fa2i_search {
    /* Takes all samples in this order. launches: launches back to back per sample. best_us: the least time known, 0 at
     * first. If it stops early and leaves samples untaken, the search ends. */
    fa2_status (*sample)(void *user, fa2i_sample *samples, size_t count, int launches, double best_us);
    /* Called before each round. Returns true to end the search; the best so far may still win. May be NULL. */
    bool (*spent)(void *user);
    void *user;
    uint64_t seed;
    size_t default_index; /* the contender that is always a finalist */
    bool exact;           /* every launch takes the same time */
    /* Results. */
    bool stopped;   /* the sampler stopped */
    bool complete;  /* all rounds were run, or no more were needed */
    bool early;     /* complete because no more rounds were needed */
    int launches;   /* per sample: 1, or FA2I_SEARCH_BATCH */
    double best_us; /* least median so far */
} fa2i_search;

/* The results in contenders must be zero at first. Returns FA2_OK also if all contenders failed. */
fa2_status fa2i_search_run(fa2i_search *search, fa2i_contender *contenders, size_t count);

/* Returns the winner among contenders whose outcome is OK; finalists go before all others. Returns count if there is
 * none. */
size_t fa2i_search_pick(const fa2i_contender *contenders, size_t count, size_t default_index);
