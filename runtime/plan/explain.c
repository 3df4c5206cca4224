/*
 * What a plan says about itself. The reason is one sentence per rule; the default rule's also says
 * what is not as it should be: earlier choices that failed, spills, PTX, an SM that is not the
 * card's.
 */
#include "runtime/plan/planner.h"

#include <assert.h>
#include <stdio.h>

const char *fa2_rule_string(fa2_rule rule)
{
    switch (rule) {
    case FA2_RULE_EXACT:
        return "exact";
    case FA2_RULE_NEAREST:
        return "nearest";
    case FA2_RULE_ARCH:
        return "arch";
    case FA2_RULE_DEFAULT:
        return "default";
    }
    return "unknown rule";
}

static void reason_tuned(const fa2i_decision *decision, int arch, char *out, size_t out_bytes)
{
    const fa2i_choice *choice = &decision->choice;
    const char *how = choice->winner.measured ? "measured" : "ranked by the cost model";
    char tuned[FA2I_PROBLEM_CHARS];

    assert(decision->rule != FA2_RULE_DEFAULT); /* which has no choice to tell of */
    fa2i_problem_format(&choice->problem, tuned, sizeof(tuned));
    switch (decision->rule) {
    case FA2_RULE_EXACT:
        snprintf(out, out_bytes, "the winner for this very problem, %s on this device", how);
        break;
    case FA2_RULE_NEAREST:
        snprintf(out, out_bytes,
                 "this problem is not tuned here; the nearest that is, %s on this device, is %s "
                 "(distance %.2f)",
                 how, tuned, decision->distance);
        break;
    case FA2_RULE_ARCH:
        snprintf(
            out, out_bytes,
            "nothing fitting is tuned on this device; for sm_%d the nearest problem %s %s is %s "
            "(distance %.2f)",
            arch, how, choice->real ? "on another card" : "offline", tuned, decision->distance);
        break;
    case FA2_RULE_DEFAULT: /* excluded above */
        break;
    }
}

static void reason_default(int card_arch, int wanted_arch, const fa2i_plan *plan, char *out,
                           size_t out_bytes)
{
    char which[96];
    if (plan->slot->spill_bytes > 0)
        snprintf(which, sizeof(which), "the least spilling of the cost model's first %zu choices",
                 plan->tried);
    else if (plan->tried > 1)
        snprintf(which, sizeof(which),
                 "choice %zu of the cost model, as those before it fail or spill", plan->tried);
    else
        snprintf(which, sizeof(which), "the cost model's first choice");

    const char *ptx = plan->slot->target[0] == 'c' ? ", as PTX that the driver compiled" : "";
    if (wanted_arch != 0)
        snprintf(out, out_bytes, "kernels for sm_%d are asked for: %s%s", wanted_arch, which, ptx);
    else
        snprintf(out, out_bytes, "nothing tuned for sm_%d can be used: %s%s", card_arch, which,
                 ptx);
}

void fa2i_planner_explain(const fa2i_planner *planner, const fa2i_plan *plan,
                          fa2_explanation *ret_explanation)
{
    const fa2i_card *card = &planner->device->card;
    const fa2i_slot *slot = plan->slot;
    const fa2i_choice *choice = &plan->decision.choice;
    const bool tuned = plan->decision.rule != FA2_RULE_DEFAULT;
    fa2_explanation *e = ret_explanation;

    *e =
        (fa2_explanation){.rule = plan->decision.rule,
                          .measured = choice->winner.measured,
                          .tuned_problem = choice->problem,
                          .registers = slot->loaded.registers,
                          .spill_bytes = slot->spill_bytes,
                          .smem_bytes = fa2i_recipe_main(&slot->loaded.variant.recipe)->smem_bytes};
    if (e->measured)
        e->median_us = choice->winner.median_us;
    snprintf(e->device, sizeof(e->device), "%s", tuned ? choice->device : card->name);
    snprintf(e->variant, sizeof(e->variant), "%s", slot->loaded.variant.text);
    snprintf(e->target, sizeof(e->target), "%s", slot->target);
    if (tuned)
        reason_tuned(&plan->decision, card->arch, e->reason, sizeof(e->reason));
    else
        reason_default(card->arch, planner->arch, plan, e->reason, sizeof(e->reason));
}
