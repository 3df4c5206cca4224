#include "tuner/bench/summary.h"

#include <math.h>

double fa2i_student_975(size_t freedom)
{
    /* Below six degrees of freedom the series is not accurate enough. */
    static const double few[] = {12.7062, 4.3027, 3.1824, 2.7764, 2.5706};
    if (freedom <= sizeof few / sizeof *few)
        return few[freedom > 0 ? freedom - 1 : 0];
    /* Cornish-Fisher expansion around the normal quantile. */
    const double z = 1.959963985, v = (double)freedom, z2 = z * z;
    return z + z * (z2 + 1) / (4 * v) + z * ((5 * z2 + 16) * z2 + 3) / (96 * v * v) +
           z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * v * v * v);
}

fa2i_summary fa2i_summary_of(double *samples, size_t count)
{
    fa2i_summary s = {.n = count, .order = fa2i_statistics_of(samples, count)};
    double sum = 0, squares = 0;
    if (count == 0)
        return s;
    for (size_t i = 0; i < count; i++)
        sum += samples[i];
    s.mean = sum / (double)count;
    s.max = samples[count - 1];
    if (count == 1)
        return s;
    for (size_t i = 0; i < count; i++)
        squares += (samples[i] - s.mean) * (samples[i] - s.mean);
    s.sd = sqrt(squares / (double)(count - 1));
    s.ci95 = fa2i_student_975(count - 1) * s.sd / sqrt((double)count);
    return s;
}

bool fa2i_summary_is_wide(const fa2i_summary *summary)
{
    return summary->order.q3 - summary->order.q1 > FA2I_SUMMARY_QUARTILES * summary->order.median ||
           summary->ci95 > FA2I_SUMMARY_UNSURE * summary->mean;
}
