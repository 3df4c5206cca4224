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

/* Decide among choices (fa2i_cache_choices). A choice is this device's when name, SM, SM count,
 * shared memory and L2 agree. Ties go to the earlier choice; measured goes before modelled at equal
 * rule and distance; a choice whose shared memory does not fit the card is passed over. */
void fa2i_choose_among(const fa2i_choice *choices, size_t count, const fa2i_card *card,
                       const fa2_problem *problem, fa2i_decision *ret_decision);

/* The same with the choices of a cache; cache == NULL decides FA2_RULE_DEFAULT. */
fa2_status fa2i_choose(fa2i_cache *cache, const fa2i_card *card, const fa2_problem *problem,
                       fa2i_decision *ret_decision);

#endif
