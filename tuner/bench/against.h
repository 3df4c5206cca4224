/*
 * Compares a benchmark with an earlier one: for each problem the time of the runtime's kernel now, and then. Not
 * thread-safe.
 */
#pragma once

#include "tuner/bench/benchmark.h"
#include "tuner/report/gather.h"

typedef struct fa2i_against {
    const char *path;  /* of the earlier benchmark; borrowed */
    fa2i_rows earlier; /* device, shape, median_us, l2, arch, sm_count (fa2i_benchmark_file_times); owned */
    double most;       /* more than this ratio of times, now to then, is too slow; 0: no ratio is */
} fa2i_against;

/* Returns FA2_E_INVALID if one benchmark flushes the L2 before each run (cold), and the other does not. */
fa2_status fa2i_against_check(const fa2i_against *against, bool cold);

/* Returns FA2_E_INVALID if the earlier benchmark has none of these problems on such a card. */
fa2_status fa2i_against_meets(const fa2i_against *against, const fa2i_card *card, const fa2_problem *problems,
                              size_t count);

/* Prints a table of the problems of both benchmarks, and how many others there are: the earlier one lacks them or
 * measured them on another card, or they failed now. *ret_slower: how many problems are too slow. FA2_E_INVALID: the
 * two have no problem in common. */
fa2_status fa2i_against_print(const fa2i_against *against, const fa2i_card *card, const fa2i_benchmark *list,
                              size_t count, FILE *out, size_t *ret_slower);
