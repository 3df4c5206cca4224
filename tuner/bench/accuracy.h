/*
 * How good the cost model and the choice of kernels are, by what a database measured on a card: nothing runs.
 * So the machine that measured and one that imported the measurements come to the same figures.
 *
 * Loss and regret are the time of a kernel over that of the fastest, less 1. Errors: those of cache and
 * generator. Not thread-safe.
 */
#ifndef FA2I_ACCURACY_H
#define FA2I_ACCURACY_H

#include "cache/evidence.h"
#include "runtime/lua/generator.h"

#define FA2I_ACCURACY_UNKNOWN (-2.0)

/* Of one problem. */
typedef struct fa2i_accuracy {
    fa2_problem problem;
    size_t variants; /* that were timed and that this fa2 has: two at least */
    double best_us;
    /* Spearman's, of the model's times and those measured, by registers as compiled. */
    double rank_correlation;
    double first_loss; /* of the kernel that the model puts first */
    char first[FA2I_VARIANT_CHARS];
    /* Of the kernel that the runtime would choose if the problem itself had not been measured;
     * FA2I_ACCURACY_UNKNOWN: that kernel was not timed on it. */
    double regret;
    char chosen[FA2I_VARIANT_CHARS];
} fa2i_accuracy;

/* Of all problems of an operation that were timed on the card. measured: on a device; else the model's times
 * of a software device. *ret_list is the caller's (fa2i_free). */
fa2_status fa2i_accuracy_find(fa2i_generator *generator, fa2i_cache *cache, const fa2i_card *card,
                              fa2_op op, bool measured, fa2i_accuracy **ret_list,
                              size_t *ret_count);

/* Spearman's rank correlation of count >= 2 pairs; equal numbers share their places. 0 where all of one side
 * are equal. FA2_E_MEMORY. */
fa2_status fa2i_rank_correlation(const double *x, const double *y, size_t count, double *ret_rho);

#endif
