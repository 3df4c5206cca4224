/*
 * Summarizes the times of one kernel: the mean, the spread of the samples, the confidence of the mean, and whether it
 * is good enough to be quoted. Pure; thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "tuner/search/statistics.h"

typedef struct fa2i_summary {
    size_t n;
    double mean, sd; /* sd of the sample, n - 1; 0 for one sample */
    double ci95;     /* the mean is within +- this with 95 % confidence, by Student's t; 0 for one sample */
    double max;
    fa2i_statistics order; /* least, quartiles */
} fa2i_summary;

/* Summarizes samples in any unit, and sorts them in place. Returns zeros without samples. */
fa2i_summary fa2i_summary_of(double *samples, size_t count);

/* Says whether the spread is too wide to be quoted. Either the quartiles differ by more than FA2I_SUMMARY_QUARTILES of
 * the median, or the confidence interval exceeds FA2I_SUMMARY_UNSURE of the mean. */
#define FA2I_SUMMARY_QUARTILES 0.05
#define FA2I_SUMMARY_UNSURE    0.02
bool fa2i_summary_is_wide(const fa2i_summary *summary);

/* Returns Student's t at 0.975 for this number of degrees of freedom, at least 1. Accurate to 0.1 %. */
double fa2i_student_975(size_t freedom);
