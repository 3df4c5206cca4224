/* The variances that int8_scores.h describes, in fp64. */
#include "tuner/judge/int8_scores.h"

#include <math.h>
#include "runtime/base/problem.h"

void fa2i_int8_measure(const float *k, int32_t count, int head_dim, fa2i_int8_keys *keys)
{
    double mean[FA2I_MOST_head_dim] = {0}, most = 0;
    for (int32_t j = 0; j < count; j++)
        for (int d = 0; d < head_dim; d++)
            mean[d] += (double)k[(int64_t)j * head_dim + d] / count;
    for (int32_t j = 0; j < count; j++) {
        keys->squares[j] = 0;
        for (int d = 0; d < head_dim; d++) {
            const double x = (double)k[(int64_t)j * head_dim + d] - mean[d];
            keys->squares[j] += x * x;
            most = fmax(most, fabs(x));
        }
    }
    keys->step = most / 127;
}

fa2i_int8_query fa2i_int8_query_of(const float *q, int head_dim, double scale, const fa2i_int8_keys *keys)
{
    double square = 0, most = 0;
    for (int d = 0; d < head_dim; d++) {
        square += (double)q[d] * (double)q[d];
        most = fmax(most, fabs((double)q[d]));
    }
    const double step = most / 127, key_square = keys->step * keys->step;
    return (fa2i_int8_query){.shared =
                                 scale * scale * (key_square * square + head_dim * step * step * key_square / 12) / 12,
                             .per_square = scale * scale * step * step / 12};
}
