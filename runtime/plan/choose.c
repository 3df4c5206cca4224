/*
 * Each choice that can serve the problem gets a rank (rule, distance, measured or modelled), and
 * the best rank wins.
 *
 * - The scan goes forward and replaces only by something better, so ties stay with the earlier
 *   choice; fa2i_cache_choices has a fixed order, so the decision is reproducible.
 * - Only a real device can be "this device": the card that stands for an SM in an offline build
 *   may carry the same numbers, and its winners are modelled.
 */
#include "runtime/plan/choose.h"

#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/status.h"
#include "runtime/ops/op.h"

static bool is_this_device(const fa2i_choice *choice, const fa2i_card *card)
{
    return choice->real && strcmp(choice->device, card->name) == 0 && choice->arch == card->arch &&
           choice->sm_count == card->sm_count &&
           choice->smem_block_bytes == card->smem_block_bytes && choice->l2_bytes == card->l2_bytes;
}

static fa2i_decision rank(const fa2i_choice *choice, const fa2i_card *card,
                          const fa2_problem *problem)
{
    fa2i_decision decision = {.rule = FA2_RULE_ARCH,
                              .choice = *choice,
                              .distance = fa2i_problem_distance(&choice->problem, problem)};
    if (is_this_device(choice, card)) {
        bool same = memcmp(&choice->problem, problem, sizeof(*problem)) == 0;
        decision.rule = same ? FA2_RULE_EXACT : FA2_RULE_NEAREST;
    }
    return decision;
}

static bool is_better(const fa2i_decision *a, const fa2i_decision *b)
{
    if (a->rule != b->rule)
        return a->rule < b->rule;
    if (a->distance < b->distance || a->distance > b->distance)
        return a->distance < b->distance;
    return a->choice.winner.measured && !b->choice.winner.measured;
}

void fa2i_choose_among(const fa2i_choice *choices, size_t count, const fa2i_card *card,
                       const fa2_problem *problem, fa2i_decision *ret_decision)
{
    fa2i_decision best = {.rule = FA2_RULE_DEFAULT};

    for (size_t i = 0; i < count; i++) {
        if (choices[i].arch != card->arch || choices[i].smem_bytes > card->smem_block_bytes)
            continue;
        fa2i_decision decision = rank(&choices[i], card, problem);
        if (is_better(&decision, &best))
            best = decision;
    }
    *ret_decision = best;
}

fa2_status fa2i_choose(fa2i_cache *cache, const fa2i_card *card, const fa2_problem *problem,
                       fa2i_decision *ret_decision)
{
    fa2_status st = FA2_OK;
    fa2i_choice *choices = NULL;
    size_t count = 0;

    if (cache != NULL)
        FA2_TRY(fa2i_cache_choices(cache, card->arch, problem, fa2i_op_of(problem)->abi, &choices,
                                   &count));
    fa2i_choose_among(choices, count, card, problem, ret_decision);
done:
    fa2i_free(choices);
    return st;
}
