/*
 * Quartiles of a set of samples. Pure; thread-safe.
 */
#pragma once

#include <stddef.h>

typedef struct fa2i_statistics {
    double min, q1, median, q3; /* quartiles by linear interpolation; all 0 without samples */
} fa2i_statistics;

/* Sorts samples in place. */
fa2i_statistics fa2i_statistics_of(double *samples, size_t count);
