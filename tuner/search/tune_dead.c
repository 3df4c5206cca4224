/*
 * Finds problems whose candidates are all known to fail: tuning would find no kernel.
 */
#include <stdio.h>
#include <string.h>
#include "tuner/search/tune.h"

/* *ret_outcome: how a candidate is known to have failed, or FA2I_OUTCOME_OK if it may run. With --force measurements do
 * not count, because they are taken again. *ret_sound: it compiled and does not spill. */
static fa2_status find_failure(const fa2i_tune *tune, const fa2i_tune_problem *problem, const fa2i_tune_kernel *k,
                               fa2i_outcome *ret_outcome, bool *ret_sound)
{
    fa2i_kernel kernel = {0};
    fa2i_verification verdict = {0};
    fa2i_measurement row = {0};
    const fa2i_key *key = &k->kernel.key;
    *ret_outcome = k->refuted ? k->verification.outcome : FA2I_OUTCOME_OK;
    *ret_sound = false;
    if (k->refuted)
        return FA2_OK;
    fa2_status st = fa2i_cache_get_kernel(tune->cache, key, k->kernel.variant.recipe.abi, false, &kernel);
    if (st != FA2_OK)
        return st == FA2_E_NOT_FOUND ? FA2_OK : st;
    *ret_outcome = kernel.outcome;
    *ret_sound = kernel.outcome == FA2I_OUTCOME_OK;
    fa2i_kernel_done(&kernel);
    if (*ret_outcome == FA2I_OUTCOME_COMPILE_ERROR)
        return FA2_OK;
    st = fa2i_cache_get_verification(tune->cache, tune->device, key, &verdict);
    if (st == FA2_OK && verdict.outcome != FA2I_OUTCOME_OK)
        *ret_outcome = verdict.outcome;
    if (*ret_outcome != FA2I_OUTCOME_OK || tune->request->force || (st != FA2_OK && st != FA2_E_NOT_FOUND))
        return st == FA2_E_NOT_FOUND ? FA2_OK : st;
    st = fa2i_cache_get_measurement(tune->cache, tune->device, problem->id, key, &row);
    if (st == FA2_OK && row.settled)
        *ret_outcome = row.outcome;
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

static void say_dead(const size_t *counts, fa2i_tune_problem *problem)
{
    char list[160] = "";
    size_t used = 0;
    for (int i = FA2I_OUTCOME_OK + 1; i < FA2I_OUTCOME_COUNT && used < sizeof list; i++)
        if (counts[i] > 0)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s: %zu", used == 0 ? "" : ", ",
                                     fa2i_outcome_string((fa2i_outcome)i), counts[i]);
    snprintf(problem->message, sizeof problem->message,
             "no variant can run (%s): fa2-tune show says why, and fa2-tune forget --failures (with "
             "--shape: this problem's kind alone) lets the next tuning try them again",
             list);
}

fa2_status fa2i_tune_find_dead(const fa2i_tune *tune, fa2i_tune_problem *problem, bool *ret_dead)
{
    size_t counts[FA2I_OUTCOME_COUNT] = {0};
    bool any_sound = false;
    *ret_dead = false;
    for (size_t i = 0; i < problem->count; i++) {
        fa2i_outcome outcome = FA2I_OUTCOME_OK;
        bool sound = false;
        const fa2_status st =
            find_failure(tune, problem, &tune->found.kernels[problem->candidates[i]], &outcome, &sound);
        if (st != FA2_OK || outcome == FA2I_OUTCOME_OK)
            return st;
        counts[outcome]++;
        any_sound = any_sound || sound;
    }
    if (counts[FA2I_OUTCOME_SPILLED] > 0 && !any_sound) /* a kernel that spills is better than none */
        return FA2_OK;
    say_dead(counts, problem);
    *ret_dead = true;
    return FA2_OK;
}
