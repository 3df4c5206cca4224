/*
 * How far results may be from exact ones if a problem permits e4m3 numbers in P V (FA2_PV_FP8), besides what
 * int8_scores.h says.
 *
 * The model: a number is 2^e * m with three bits of m below its leading one, so it changes by up to 1/16 of its size,
 * evenly distributed and independently: a variance of at most size^2 * 2^-6 / 12. Smaller numbers are multiples of a step,
 * as if they were integers. The largest V of a sequence and head is 448 such numbers; kernels have one for each tile,
 * which is smaller. The largest P of a row is 2^6 or more of them. The smallest step is 2^-9.
 *
 * Pure functions; thread-safe.
 */
#ifndef FA2I_FP8_VALUES_H
#define FA2I_FP8_VALUES_H

#include <math.h>
#include <stddef.h>

#define FA2I_FP8_SHARE (0x1p-6 / 12)

/* Returns the step of the smallest numbers of V. */
static inline double fa2i_fp8_step(const float *v, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)v[i]));
    return most / 448 * 0x1p-9;
}

/* Returns the variance of a key's product of P and V. p, most_p: of the key, and of the row's most weighty key. */
static inline double fa2i_fp8_variance(double p, double most_p, double v, double v_step)
{
    const double p_step = most_p * 0x1p-15;
    return 2 * FA2I_FP8_SHARE * p * p * v * v + (p * p * v_step * v_step + p_step * p_step * v * v) / 12;
}

#endif
