/*
 * What a benchmark says of the times of one kernel: mean, how far samples lie apart, how sure the mean
 * is, and whether that is sure enough to be quoted. Pure; thread-safe.
 */
#ifndef FA2I_SUMMARY_H
#define FA2I_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>
#include "tuner/search/statistics.h"

typedef struct fa2i_summary {
    size_t n;
    double mean, sd; /* of the sample, n - 1; 0 for one */
    double ci95; /* the mean is within +- this with 95 % confidence, by Student's t; 0 for one */
    double max;
    fa2i_statistics order; /* least, quartiles */
} fa2i_summary;

/* Samples in any unit; sorts them in place. Zeros without samples. */
fa2i_summary fa2i_summary_of(double *samples, size_t count);

/* Spread too wide to be quoted: a quarter of the samples apart by more than FA2I_SUMMARY_QUARTILES of
 * the median, or a mean that is unsure by more than FA2I_SUMMARY_UNSURE of itself. */
#define FA2I_SUMMARY_QUARTILES 0.05
#define FA2I_SUMMARY_UNSURE    0.02
bool fa2i_summary_is_wide(const fa2i_summary *summary);

/* Student's t at 0.975 for so many degrees of freedom, at least 1; to 0.1 %. */
double fa2i_student_975(size_t freedom);

#endif
