/*
 * - A choice counts as "this card" only if a real device made it. An offline build uses a card that stands for an SM.
 *   That card may have the same numbers, but its winners are estimates of the model.
 * - A rule (fa2_rule) names what an estimate is based on.
 */
#include "runtime/plan/choose.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static bool is_this_card(const fa2i_choice *choice, const fa2i_card *card)
{
    fa2i_card of_choice = {.arch = choice->arch,
                           .sm_count = choice->sm_count,
                           .smem_block_bytes = (int)choice->smem_block_bytes,
                           .l2_bytes = choice->l2_bytes};
    memcpy(of_choice.name, choice->device, sizeof of_choice.name);
    return choice->real && choice->smem_block_bytes == of_choice.smem_block_bytes &&
           fa2i_card_is_same(&of_choice, card);
}

const fa2i_choice *fa2i_choose_exact(const fa2i_choice *choices, size_t count, const fa2i_card *card,
                                     const fa2_problem *problem)
{
    const fa2i_choice *faulty = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!is_this_card(&choices[i], card) || memcmp(&choices[i].problem, problem, sizeof *problem) != 0)
            continue;
        if (choices[i].fault == NULL)
            return &choices[i];
        if (faulty == NULL)
            faulty = &choices[i];
    }
    return faulty;
}

void fa2i_decide_exact(const fa2i_choice *choice, fa2i_decision *ret_decision)
{
    const fa2i_winner *winner = &choice->winner;
    fa2i_decision d = {.rule = FA2_RULE_EXACT,
                       .problem = choice->problem,
                       .real = choice->real,
                       .measured = winner->measured,
                       .median_us = winner->measured ? winner->median_us : 0,
                       .estimate_us = winner->measured ? winner->median_us : winner->model_us};
    memcpy(d.device, choice->device, sizeof d.device);
    *ret_decision = d;
}

fa2_status fa2i_choose_option(const fa2i_option *options, size_t count, fa2i_try_fn try_option, void *user,
                              size_t *ret_chosen, size_t *ret_tried)
{
    size_t chosen = count, tried = 0;
    int compiled = 0, spills = 0;
    for (size_t i = 0; i < count && (chosen == count || spills > 0); i++) {
        fa2i_trial trial = {.usable = false};
        if (options[i].compile && compiled == FA2I_COMPILE_MOST)
            continue;
        tried++;
        const fa2_status st = try_option(user, &options[i], &trial);
        if (st != FA2_OK)
            return st;
        compiled += options[i].compile && !trial.predicted;
        if (!trial.usable || (chosen < count && trial.spills >= spills))
            continue;
        chosen = i;
        spills = options[i].rests == FA2I_RESTS_MODEL ? trial.spills : 0;
    }
    *ret_chosen = chosen;
    if (ret_tried != NULL)
        *ret_tried = tried;
    return FA2_OK;
}

/* Returns the kernel's time in a set, or 0. */
static double time_in(const fa2i_evidence *evidence, const fa2i_known_set *set, size_t kernel)
{
    for (size_t i = set->first; i < set->first + set->count; i++)
        if (evidence->times[i].kernel == kernel)
            return evidence->times[i].us;
    return 0;
}

static fa2_rule rule_of(fa2i_rests rests)
{
    static const fa2_rule rules[] = {[FA2I_RESTS_MEASURED] = FA2_RULE_EXACT,
                                     [FA2I_RESTS_NEARBY] = FA2_RULE_NEAREST,
                                     [FA2I_RESTS_ELSEWHERE] = FA2_RULE_ARCH,
                                     [FA2I_RESTS_MODEL] = FA2_RULE_DEFAULT};
    return rules[rests];
}

/* Returns the index of a text, or count if no option has it. */
static size_t index_of(const fa2i_option *options, size_t count, const char *text)
{
    size_t i = 0;
    while (i < count && strcmp(options[i].text, text) != 0)
        i++;
    return i;
}

/* Says why an option is not taken: the order of options depends on more than estimates (gen/core/estimate.lua). */
static const char *why_not(const fa2i_option *option, const fa2i_trial *trial)
{
    if (trial->spills > 0)
        return "but it spills";
    return option->compile ? "but the gain is too small for compiling it" : "but the gain is too small to be sure of";
}

fa2_status fa2i_choose_runner_up(const fa2i_option *options, size_t count, const fa2i_decision *decision,
                                 const char *chosen, fa2i_try_fn try_option, void *user, fa2i_runner_up *ret_runner_up)
{
    const size_t at = index_of(options, count, chosen);
    *ret_runner_up = (fa2i_runner_up){.us = 0};
    for (size_t i = at < count ? at + 1 : 0; i < count; i++) {
        fa2i_trial trial = {.usable = false};
        const fa2_status st = try_option(user, &options[i], &trial);
        if (st != FA2_OK)
            return st;
        if (!trial.usable)
            continue;
        memcpy(ret_runner_up->text, options[i].text, sizeof ret_runner_up->text);
        ret_runner_up->us = options[i].us;
        if (options[i].us < decision->estimate_us)
            ret_runner_up->but = why_not(&options[i], &trial);
        break;
    }
    return FA2_OK;
}

static void remember(const char *text, const char *why, fa2i_decision *decision)
{
    snprintf(decision->passed_over, sizeof decision->passed_over, "%s", text);
    snprintf(decision->why, sizeof decision->why, "%s", why);
}

void fa2i_decide_passed_over(const char *text, const char *why, fa2i_decision *decision)
{
    if (decision->passed_count++ == 0)
        remember(text, why, decision);
}

void fa2i_decide_replaces(const char *text, const char *why, bool counted, fa2i_decision *decision)
{
    decision->passed_count += !counted;
    decision->replaces = true;
    remember(text, why, decision);
}

void fa2i_decide_option(const fa2i_option *options, size_t chosen, const fa2i_evidence *evidence,
                        const fa2_problem *asked, const fa2i_card *card, fa2i_decision *ret_decision)
{
    const fa2i_option *option = &options[chosen];
    fa2i_decision d = {.rule = rule_of(option->rests),
                       .problem = *asked,
                       .real = true,
                       .distance = option->distance,
                       .estimate_us = option->us};
    snprintf(d.device, sizeof d.device, "%s", card->name);
    if (option->set != FA2I_NONE) {
        const fa2i_known_set *set = &evidence->sets[option->set];
        d.problem = set->problem;
        d.real = set->real;
        d.measured = set->measured;
        d.rule = set->shipped ? FA2_RULE_SHIPPED : d.rule;
        d.median_us = set->measured ? time_in(evidence, set, option->kernel) : 0;
        snprintf(d.device, sizeof d.device, "%s", set->card.name);
    }
    d.corrected = option->set == FA2I_NONE && option->neighbour != FA2I_NONE;
    if (d.corrected)
        d.neighbour = evidence->sets[option->neighbour].problem;
    *ret_decision = d;
}

void fa2i_decide_for_other(const fa2_problem *problem, fa2i_decision *decision)
{
    if (decision->rule == FA2_RULE_EXACT)
        decision->rule = FA2_RULE_NEAREST;
    if (decision->rule != FA2_RULE_DEFAULT)
        decision->distance = fa2i_problem_distance(&decision->problem, problem);
}
