/*
 * Each choice that can serve the problem gets a rank (rule, distance, measured or modelled), and
 * the best rank wins.
 *
 * - The scan goes forward and replaces only by something better, so ties stay with the earlier
 *   choice; fa2i_cache_choices has a fixed order, so the decision is reproducible.
 * - A distance is a sum of ln(larger / smaller), never of ln(a / b): halving and doubling then
 *   give the same bits, and a tie is a tie.
 * - Only a real device can be "this device": the card that stands for an SM in an offline build
 *   may carry the same numbers, and its winners are modelled.
 */
#include "runtime/plan/choose.h"

#include <math.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/cuda/launch.h" /* FA2I_LAUNCH_ABI */

_Static_assert(sizeof(fa2_problem) == 16 * sizeof(int32_t), "problems are compared as bytes");

static double log_ratio(double a, double b)
{
    return log(a > b ? a / b : b / a);
}

double fa2i_problem_distance(const fa2_problem *a, const fa2_problem *b)
{
    return log_ratio(a->seq_q, b->seq_q) + log_ratio(a->seq_k, b->seq_k) +
           log_ratio((double)a->batch * a->heads_q, (double)b->batch * b->heads_q);
}

static int32_t round_up(int32_t size)
{
    int shift = 0;
    while (size >> shift >= 8) /* three bits are left */
        shift++;
    const int64_t rounded = (size + (INT64_C(1) << shift) - 1) >> shift << shift;
    return rounded > INT32_MAX ? size : (int32_t)rounded;
}

fa2_problem fa2i_problem_rounded(const fa2_problem *problem)
{
    fa2_problem rounded = *problem;
    rounded.batch = round_up(problem->batch);
    rounded.seq_q = round_up(problem->seq_q);
    rounded.seq_k = round_up(problem->seq_k);
    /* near the limits of what is valid, each problem stands for itself */
    return fa2i_problem_check(&rounded) == FA2_OK ? rounded : *problem;
}

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
        FA2_TRY(fa2i_cache_choices(cache, card->arch, problem, FA2I_LAUNCH_ABI, &choices, &count));
    fa2i_choose_among(choices, count, card, problem, ret_decision);
done:
    fa2i_free(choices);
    return st;
}
