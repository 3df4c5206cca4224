/*
 * The effect of features on scores and on P, in fp64: ALiBi, sinks, a bias or mask, dropout, as fa2.h defines them. All
 * references use these functions. Pure; thread-safe.
 */
#ifndef FA2I_JUDGE_FEATURES_H
#define FA2I_JUDGE_FEATURES_H

#include "runtime/ops/operands.h"

/* Operands by their line in operands.def, in host memory, borrowed. Operands that the problem does not ask for are
 * not read. */
typedef struct fa2i_features {
    const void *data[FA2I_OPERAND_COUNT];
    int64_t period[FA2I_OPERAND_COUNT];                     /* element i is data[i % period] */
    int64_t strides[FA2I_OPERAND_COUNT][FA2I_OPERAND_RANK]; /* as a call gets them */
    fa2_dropout dropout;                                    /* with the seed and the offset that a launch reads */
    int32_t bias_first; /* the bias column of the sequence's first key, after padding */
} fa2i_features;

/* Returns the number that is added to a scaled and capped score; -INFINITY hides the key. */
double fa2i_score_term(const fa2_problem *problem, const fa2i_features *features, int32_t batch, int32_t head,
                       int32_t query, int32_t key, double score);

/* Returns the score of the sink column; -INFINITY: there is none. */
double fa2i_sink_score(const fa2_problem *problem, const fa2i_features *features, int32_t head);

/* Returns the factor of an element of P: 0 if it is dropped, else the factor of kept elements. */
double fa2i_kept(const fa2_problem *problem, const fa2i_features *features, int32_t batch, int32_t head, int32_t query,
                 int32_t key);

#endif
