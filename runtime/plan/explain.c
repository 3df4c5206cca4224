/*
 * Explains a plan. Each rule has one sentence that gives the reason. The default rule's sentence also names what went
 * wrong: earlier choices that failed, spills, PTX, an SM that is not the card's. Then come kernels that cannot be used,
 * and a kernel that is estimated to be faster and was not taken.
 */
#include "runtime/plan/planner.h"

#include <stdio.h>
#include <string.h>
#include "runtime/base/shown.h"

const char *fa2_rule_string(fa2_rule rule)
{
    static const char *const words[] = {[FA2_RULE_EXACT] = "exact",
                                        [FA2_RULE_NEAREST] = "nearest",
                                        [FA2_RULE_ARCH] = "arch",
                                        [FA2_RULE_DEFAULT] = "default",
                                        [FA2_RULE_SHIPPED] = "shipped"};
    const size_t at = (size_t)rule;
    return at < sizeof words / sizeof *words ? words[at] : "unknown rule";
}

static void reason_tuned(const fa2i_decision *d, char *out, size_t out_bytes)
{
    const char *how = d->measured ? "measured" : "ranked by the cost model";
    const fa2i_shape tuned = fa2i_problem_shape(&d->problem);
    if (d->rule == FA2_RULE_EXACT)
        snprintf(out, out_bytes, "%s for this very problem, %s on this device",
                 d->passed_count > 0 ? "the fastest that can be used" : "the fastest", how);
    else if (d->rule == FA2_RULE_SHIPPED)
        fa2i_shown_write(out, out_bytes,
                         "nothing of this kind is tuned here: the best of all estimates, about " FA2I_US " us, by what "
                         "comes with fa2, %s on a %.100s; the nearest is %.200s (distance %.3g)",
                         d->estimate_us, how, d->device, tuned.text, d->distance);
    else
        snprintf(out, out_bytes,
                 "this problem is not tuned here: the best of all estimates, about " FA2I_US " us, carried "
                 "over by the cost model from what was %s %s; the nearest is %.300s (distance %.3g)",
                 d->estimate_us, how,
                 d->rule == FA2_RULE_NEAREST ? "on this device"
                 : d->real                   ? "on another card"
                                             : "offline",
                 tuned.text, d->distance);
}

static void reason_default(int card_arch, int wanted_arch, const fa2i_plan *plan, char *out, size_t out_bytes)
{
    char which[160];
    if (plan->ready.slot->spills > 0 && plan->ready.slot->spill_bytes == 0)
        snprintf(which, sizeof(which),
                 "the first that compiles of the cost model's first %zu choices, all of them "
                 "slowed by a stack frame or by products that wait for each other",
                 plan->tried);
    else if (plan->ready.slot->spills > 0)
        snprintf(which, sizeof(which), "the least spilling of the cost model's first %zu choices", plan->tried);
    else if (plan->tried > 1)
        snprintf(which, sizeof(which), "choice %zu of the cost model, because earlier ones fail or spill", plan->tried);
    else
        snprintf(which, sizeof(which), "the cost model's first choice");

    const char *ptx = plan->ready.slot->target[0] == 'c' ? ", as PTX that the driver compiled" : "";
    if (wanted_arch != 0)
        snprintf(out, out_bytes, "kernels for sm_%d are asked for: %s%s", wanted_arch, which, ptx);
    else if (plan->decision.corrected) {
        snprintf(out, out_bytes,
                 "nothing of this kind is tuned for sm_%d: %s%s, as measurements of other kinds correct "
                 "it, the nearest %.200s; estimated at " FA2I_US " us",
                 card_arch, which, ptx, fa2i_problem_shape(&plan->decision.neighbour).text, plan->decision.estimate_us);
    } else
        snprintf(out, out_bytes,
                 "no problem near this one is tuned for sm_%d with this kernel: %s%s, estimated at " FA2I_US " us",
                 card_arch, which, ptx, plan->decision.estimate_us);
}

/* Appends the other kernels to the reason, as far as there is room. */
static void add_others(const fa2i_decision *d, const fa2i_runner_up *runner_up, char *out, size_t out_bytes)
{
    size_t used = strlen(out);
    if (d->passed_count > 0) {
        fa2i_shown_write(out + used, out_bytes - used, "; %s%s%.150s: %s",
                         d->replaces ? "it replaces the winner" : "passed over", d->passed_over[0] == '\0' ? "" : " ",
                         d->passed_over, d->why);
        used = strlen(out);
    }
    if (runner_up->but != NULL)
        snprintf(out + used, out_bytes - used, "; the next is estimated faster, %s", runner_up->but);
}

void fa2i_planner_explain(const fa2i_planner *planner, const fa2i_plan *plan, const fa2i_runner_up *runner_up,
                          fa2_explanation *ret_explanation)
{
    const fa2i_card *card = &planner->device->card;
    const fa2i_slot *slot = plan->ready.slot;
    const fa2i_decision *d = &plan->decision;
    fa2_explanation *e = ret_explanation;
    *e = (fa2_explanation){.rule = d->rule,
                           .measured = d->measured,
                           .tuned_problem = d->problem,
                           .median_us = d->median_us,
                           .registers = slot->loaded.registers,
                           .spill_bytes = slot->spill_bytes,
                           .smem_bytes = fa2i_recipe_main(&slot->loaded.variant.recipe)->smem_bytes,
                           .estimate_us = d->estimate_us,
                           .runner_up_us = runner_up->us};
    fa2i_shown_write(e->device, sizeof(e->device), "%s", d->device);
    snprintf(e->variant, sizeof(e->variant), "%s", slot->loaded.variant.text);
    snprintf(e->target, sizeof(e->target), "%s", slot->target);
    snprintf(e->runner_up, sizeof(e->runner_up), "%s", runner_up->text);
    if (d->rule == FA2_RULE_DEFAULT)
        reason_default(card->arch, planner->arch, plan, e->reason, sizeof(e->reason));
    else
        reason_tuned(d, e->reason, sizeof(e->reason));
    add_others(d, runner_up, e->reason, sizeof(e->reason));
}
