/*
 * Judges the cost model and the choice of kernels by measurements in a database. Nothing runs. So a machine that
 * imported the measurements gets the same figures as the one that took them.
 *
 * Loss and regret are the time of a kernel divided by the time of the fastest, minus 1. Errors come from the
 * cache and the generator. Not thread-safe.
 */
#pragma once

#include "cache/content/evidence.h"
#include "runtime/lua/generator.h"

#define FA2I_ACCURACY_UNKNOWN (-2.0)

/* The figures of one problem. */
typedef struct fa2i_accuracy {
    fa2_problem problem;
    size_t variants; /* variants that were timed and that this fa2 has: at least two */
    double best_us;
    /* Spearman's, between the model's times and the measured ones. The model uses the compiled kernels' registers. */
    double rank_correlation;
    double first_loss; /* loss of the kernel that the model ranks first */
    char first[FA2I_VARIANT_CHARS];
    /* Regret of the kernel that the runtime would choose if the problem itself had not been measured.
     * FA2I_ACCURACY_UNKNOWN: that kernel was not timed on it. */
    double regret;
    char chosen[FA2I_VARIANT_CHARS];
} fa2i_accuracy;

/* Judges all problems of an operation that were timed on the card. measured: uses times of a device; else the modelled
 * times of a software device. The caller owns *ret_list (fa2i_free). */
fa2_status fa2i_accuracy_find(fa2i_generator *generator, fa2i_cache *cache, const fa2i_card *card, fa2_op op,
                              bool measured, fa2i_accuracy **ret_list, size_t *ret_count);

/* Spearman's rank correlation of count >= 2 pairs. Equal numbers share their ranks. Returns 0 if all numbers of one
 * side are equal. FA2_E_MEMORY. */
fa2_status fa2i_rank_correlation(const double *x, const double *y, size_t count, double *ret_rho);
