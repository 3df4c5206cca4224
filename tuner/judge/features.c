#include "tuner/judge/features.h"

#include <math.h>

static double alibi_term(const fa2_problem *p, const fa2i_features *f, int32_t batch, int32_t head,
                         int32_t query, int32_t key)
{
    const int64_t distance = (int64_t)query + p->seq_k - p->seq_q - key;
    return -(double)f->slopes[batch * f->slopes_stride + head] * fabs((double)distance);
}

double fa2i_score_term(const fa2_problem *problem, const fa2i_features *features, int32_t batch,
                       int32_t head, int32_t query, int32_t key)
{
    return problem->alibi ? alibi_term(problem, features, batch, head, query, key) : 0;
}

double fa2i_sink_score(const fa2_problem *problem, const fa2i_features *features, int32_t head)
{
    return problem->sinks ? (double)features->sinks[head] : -INFINITY;
}
