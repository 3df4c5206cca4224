/*
 * How far results may be from exact ones if a problem permits e4m3 numbers in P V (FA2_PV_FP8), besides what
 * int8_scores.h says.
 *
 * The model: a number is 2^e * m with three bits of m below its leading one, so it changes by up to 1/16 of its size,
 * evenly distributed and independently: a variance of at most size^2 * 2^-6 / 12. Smaller numbers are multiples of a step,
 * as if they were integers. The largest V of a sequence and head is 448 such numbers; kernels have one for each tile,
 * which is smaller.
 *
 * P is the number whose bits are those of its score in eighths of a power of two (templates/forward/fp8_p.cuh).
 * So it has, besides a factor that all P of a row share, an error of (1 + f) / 2^f, where f is from 0 to 1, and one of
 * rounding, 2^(1/16) at most. Both together vary by less than the 1/16 above. The largest P of a row is 2^7 or more, and
 * numbers below 2^-6 may vanish. LSE has the sum of these P, less the mean factor. If all keys have
 * the same score, their errors do not average: (1 + f) / 2^f is from 2^-0.0575 to 2^0.0287 times its mean.
 *
 * Pure functions; thread-safe.
 */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#define FA2I_FP8_SHARE (0x1p-6 / 12)

/* How far LSE may be from that of rounded scores: ln(2) * (0.0575 + 1/16). */
#define FA2I_FP8_LSE 0.0832

/* Returns the largest magnitude of V. */
static inline double fa2i_fp8_most(const float *v, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)v[i]));
    return most;
}

/* Returns the variance of a key's product of P and V. */
static inline double fa2i_fp8_variance(double p, double v, double most_v)
{
    const double step = most_v / 448 * 0x1p-9;
    return p * p * (2 * FA2I_FP8_SHARE * v * v + step * step / 12);
}

/* Returns whether P may vanish beside that of the row's most weighty key. */
static inline bool fa2i_fp8_vanishes(double p, double most_p)
{
    return p < most_p * 0x1p-13;
}
