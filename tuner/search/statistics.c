#include <stdlib.h>
#include "tuner/search/statistics.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the value at a fraction of the way through the sorted samples. */
static double quantile(const double *sorted, size_t count, double fraction)
{
    double position = fraction * (double)(count - 1);
    size_t below = (size_t)position;
    size_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (position - (double)below) * (sorted[above] - sorted[below]);
}

fa2i_statistics fa2i_statistics_of(double *samples, size_t count)
{
    if (count == 0)
        return (fa2i_statistics){0};
    qsort(samples, count, sizeof *samples, by_value);
    return (fa2i_statistics){.min = samples[0],
                             .q1 = quantile(samples, count, 0.25),
                             .median = quantile(samples, count, 0.5),
                             .q3 = quantile(samples, count, 0.75)};
}
