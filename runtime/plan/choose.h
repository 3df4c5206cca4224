/*
 * Which kernel for this problem on this card: exact winner, nearest tuned problem on this device,
 * same SM, default by the cost model. Pure apart from reading the cache; no CUDA.
 */
#ifndef FA2I_CHOOSE_H
#define FA2I_CHOOSE_H

#include "cache/cache.h"

typedef struct fa2i_decision {
    fa2_rule rule;
    fa2i_choice choice; /* for FA2_RULE_DEFAULT zero; a plan then has its problem set (plan.h) */
    double distance;    /* to choice.problem; 0 for exact */
} fa2i_decision;

/* |ln| distances of Sq, Sk and B * Hq, summed: 0 for equal shapes, ln 2 when one of them doubles.
 */
double fa2i_problem_distance(const fa2_problem *a, const fa2_problem *b);

/* What the default rule asks the cost model about instead of this problem: batch, seq_q and seq_k
 * rounded up to three significant bits, so that growing lengths ask few questions. By the model,
 * over 500 random problems on four SMs, the kernel so chosen is 0.9 % slower than the best one
 * (geometric mean), at most 29 %: tests/bench/rounding.lua. */
fa2_problem fa2i_problem_rounded(const fa2_problem *problem);

/* Decide among choices (fa2i_cache_choices). A choice is this device's when name, SM, SM count,
 * shared memory and L2 agree. Ties go to the earlier choice; measured goes before modelled at equal
 * rule and distance; a choice whose shared memory does not fit the card is passed over. */
void fa2i_choose_among(const fa2i_choice *choices, size_t count, const fa2i_card *card,
                       const fa2_problem *problem, fa2i_decision *ret_decision);

/* The same with the choices of a cache; cache == NULL decides FA2_RULE_DEFAULT. */
fa2_status fa2i_choose(fa2i_cache *cache, const fa2i_card *card, const fa2_problem *problem,
                       fa2i_decision *ret_decision);

#endif
