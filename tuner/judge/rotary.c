#include "tuner/judge/rotary.h"

#include "tuner/judge/number.h"

/* a b + c d. The fp64 result is exact, except the last bits of sums of numbers of very different size. */
static float turned(fa2_dtype dtype, float a, float b, float c, float d)
{
    return fa2i_rounded(dtype, (float)((double)a * (double)b + (double)c * (double)d));
}

void fa2i_rotate(const fa2_problem *problem, const fa2i_angles *angles, int32_t position, float *row)
{
    enum { PAIRS_MAX = 128 };
    const int pairs = problem->rotary_dim / 2;
    const int64_t at = (int64_t)(position < angles->rows ? position : angles->rows - 1) * pairs;
    float cosines[PAIRS_MAX], sines[PAIRS_MAX];
    fa2i_host_row(&angles->cos, problem->dtype, at, pairs, cosines);
    fa2i_host_row(&angles->sin, problem->dtype, at, pairs, sines);
    for (int i = 0; i < pairs; i++) {
        float *first = problem->rotary == FA2_ROTARY_INTERLEAVED ? row + 2 * i : row + i;
        float *second = problem->rotary == FA2_ROTARY_INTERLEAVED ? first + 1 : first + pairs;
        const float a = *first, b = *second;
        *first = turned(problem->dtype, a, cosines[i], -b, sines[i]);
        *second = turned(problem->dtype, b, cosines[i], a, sines[i]);
    }
}
