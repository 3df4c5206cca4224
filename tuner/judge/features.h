/*
 * What features do to scores and to P, in fp64 and once for all references: ALiBi, sinks, a bias or mask, dropout. As
 * fa2.h defines them. Pure; thread-safe.
 */
#ifndef FA2I_JUDGE_FEATURES_H
#define FA2I_JUDGE_FEATURES_H

#include "fa2.h"

/* On the host, borrowed; what the problem does not ask for is not read. */
typedef struct fa2i_features {
    const float *slopes; /* of head h in batch b at b * slopes_stride + h */
    int64_t slopes_stride;
    const float *sinks;  /* [heads_q] */
    const void *bias;    /* element i is bias[i % bias_period]; 0: the whole is there */
    fa2_dropout dropout; /* with the seed and the offset that a launch finds */
    int64_t bias_period, bias_batch, bias_head, bias_query, bias_key; /* strides */
    int32_t bias_first; /* the number of a sequence's first key in it, behind padding */
} fa2i_features;

/* What is added to a score, which is scaled and capped; -INFINITY hides the key. */
double fa2i_score_term(const fa2_problem *problem, const fa2i_features *features, int32_t batch,
                       int32_t head, int32_t query, int32_t key, double score);

/* The score of the column without a value; -INFINITY: there is none. */
double fa2i_sink_score(const fa2_problem *problem, const fa2i_features *features, int32_t head);

/* What an element of P is multiplied by: 0, or what kept ones are. */
double fa2i_kept(const fa2_problem *problem, const fa2i_features *features, int32_t batch,
                 int32_t head, int32_t query, int32_t key);

#endif
