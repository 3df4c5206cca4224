/*
 * Makes a plan: with the winner of exactly this problem, else with the best estimate.
 *
 * - A winner was the fastest of all kernels tried on its problem. Finding it takes one SQLite query per class and
 *   nothing else. If its kernel cannot be used, the estimate decides, which knows the other kernels measured on the
 *   problem. Each problem that the kernel won learns why.
 * - The log reports a kernel that cannot be used once, when that is found. Later plans pass over it silently. A refused
 *   kernel is not tried again. An unreadable one is tried again after a second.
 * - Later problems of a class use what earlier ones fetched: winners.c, planner_estimate.c, kernels.c. A problem of a
 *   known class asks SQLite nothing, with two exceptions. Once a second, it asks if the database was written. It asks
 *   again for a winner whose code is lost or refused and could not be compiled again.
 */
#include "runtime/plan/planner.h"

#include "runtime/ops/op.h"
#include "runtime/plan/planner_compile.h"
#include "runtime/plan/planner_database.h"
#include "runtime/plan/planner_estimate.h"
#include "runtime/plan/planner_notes.h"
#include "runtime/plan/planner_stored.h"
#include "runtime/plan/share.h"

fa2_status fa2i_planner_init(fa2i_planner *planner, const fa2i_device *device,
                             const fa2_config *config)
{
    fa2_status st = FA2_OK;

    *planner = (fa2i_planner){.device = device,
                              .arch = config->arch,
                              .log = config->log,
                              .log_user = config->log_user,
                              .never_writes = config->read_only != 0,
                              .no_compiler = config->never_compile != 0 ? FA2_E_FORBIDDEN : FA2_OK,
                              .kernels = {.device = device}};
    FA2_TRY(fa2i_cuda_is_software(device->cuda, &planner->as_ptx));
    FA2_TRY(fa2i_planner_open(planner, config->database));
    if (config->database == NULL || config->database[0] != '\0')
        FA2_TRY(fa2i_share_find(&planner->share));
done:
    if (st != FA2_OK)
        fa2i_planner_done(planner);
    return st;
}

void fa2i_planner_done(fa2i_planner *planner)
{
    fa2i_planner_state_done(planner);
}

/* Updates the winners of a class. An unreadable database is logged and is no error, because it is a cache. */
static fa2_status update_class(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem)
{
    bool read = false;
    fa2_status st = fa2i_winners_update(&of->winners, planner->cache, planner->device->card.arch,
                                        problem, &read);
    if (read) {
        of->told_unreadable = false;
        of->reading++;
    }
    if (st == FA2_OK || st == FA2_E_MEMORY)
        return st;
    fa2i_planner_unreadable(planner, of);
    return FA2_OK;
}

/* Refuses a winner whose rows have a fault, so that no call takes it. */
static fa2_status refuse_winner(fa2i_planner *planner, const fa2i_choice *choice, fa2i_attempt *ret_attempt)
{
    fa2i_outcome outcome = FA2I_OUTCOME_WRONG;
    fa2i_slot *slot = fa2i_kernels_slot(&planner->kernels, &choice->winner.kernel);
    if (slot == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a kernel's record");
    if (choice->refuted)
        (void)fa2i_cache_refutation(planner->cache, &choice->winner.kernel, &outcome);
    (void)fa2i_fail(FA2_E_UNSUPPORTED, "%s%s%s%s%s%s", choice->variant,
                    choice->variant[0] == '\0' ? "" : ": ", choice->fault, choice->refuted ? " (" : "",
                    choice->refuted ? fa2i_outcome_string(outcome) : "", choice->refuted ? ")" : "");
    fa2i_attempt_refuse(ret_attempt, FA2_E_UNSUPPORTED, choice->variant);
    if (choice->refuted || choice->variant[0] == '\0') /* other faults were logged when the winners were read */
        fa2i_planner_pass_over(planner, slot, "a winner");
    return FA2_OK;
}

/* Tries the winner's own code first. Learning takes a while, so it happens only if there is no compiler for that
 * code. */
static fa2_status use_winner(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem,
                             const fa2i_choice *choice, fa2i_attempt *ret_attempt)
{
    const fa2i_key *key = &choice->winner.kernel;
    fa2_status st = FA2_OK;
    if (choice->fault != NULL)
        return refuse_winner(planner, choice, ret_attempt);
    FA2_TRY(fa2i_planner_use_stored(planner, of, problem, key, ret_attempt));
    if (fa2i_planner_lacks_compiler(ret_attempt->refusal)) {
        FA2_TRY(fa2i_planner_learn(planner, of, problem));
        FA2_TRY(fa2i_planner_use_twin(planner, of, problem, key, ret_attempt));
    }
done:
    return st;
}

/* Looks for this problem's winner. FA2_OK with slot == NULL means one of two things: this problem was not tuned, or its
 * winner cannot be used. In the latter case plan->unrounded is set, and the decision says why. */
static fa2_status pick_exact(fa2i_planner *planner, fa2i_class *of, fa2i_plan *plan)
{
    fa2i_winners *winners = &of->winners;
    fa2i_attempt attempt = {0};

    fa2_status st = update_class(planner, of, &plan->problem);
    if (st != FA2_OK)
        return st;
    const fa2i_choice *choice =
        fa2i_choose_exact(winners->choices, winners->count, &planner->device->card, &plan->problem);
    if (choice == NULL)
        return FA2_OK;
    plan->unrounded = true;
    const fa2i_key key = choice->winner.kernel;
    st = use_winner(planner, of, &plan->problem, choice, &attempt);
    if (st == FA2_E_MEMORY || st == FA2_E_GENERATOR)
        return st; /* the kernel is not at fault: the next call asks for it again */
    plan->ready.slot = attempt.slot;
    plan->origin = attempt.origin;
    if (plan->ready.slot != NULL) {
        fa2i_decide_exact(choice, &plan->decision);
    } else {
        fa2i_decide_replaces(attempt.text, attempt.why, false, &plan->decision);
        if (attempt.for_now)
            fa2i_winners_drop(winners, &key);
    }
    return st;
}

/* Works out how the plan's kernel is launched. */
static fa2_status spread(const fa2i_planner *planner, fa2i_plan *plan)
{
    fa2i_ready *ready = &plan->ready;
    const fa2i_op *op = fa2i_op_of(&plan->problem);
    const fa2i_recipe *recipe = &ready->slot->loaded.variant.recipe;
    const fa2_status st = op->grid(&planner->device->card, recipe, &plan->problem, &ready->grid);
    ready->workspace_bytes = ready->grid.workspace_bytes;
    if (recipe->map_count > 0 && ready->workspace_bytes < op->unmapped_bytes(&plan->problem))
        ready->workspace_bytes = op->unmapped_bytes(&plan->problem);
    return st;
}

/* Returns whether the database can have winners for such a plan. */
static bool has_winners(const fa2i_planner *planner, bool unmapped)
{
    return planner->cache != NULL && planner->arch == 0 && !unmapped;
}

fa2_status fa2i_planner_make(fa2i_planner *planner, const fa2_problem *problem, bool unmapped,
                             fa2i_plan *ret_plan)
{
    fa2_status st = FA2_OK;
    fa2i_plan plan = {.problem = *problem, .decision.rule = FA2_RULE_DEFAULT};
    fa2i_class *of = NULL;

    FA2_TRY(fa2i_planner_follow_file(planner));
    if (planner->cache != NULL)
        fa2i_cache_begin_call(planner->cache);
    of = fa2i_planner_class(planner, problem);
    if (of == NULL)
        FA2_TRY(FA2_E_MEMORY);
    if (has_winners(planner, unmapped))
        FA2_TRY(pick_exact(planner, of, &plan));
    if (plan.ready.slot == NULL)
        FA2_TRY(fa2i_planner_pick_estimate(planner, of, unmapped, &plan));
    FA2_TRY(spread(planner, &plan));
    fa2i_planner_write_notes(planner, false);
done:
    if (st != FA2_OK)
        plan.ready.slot = NULL;
    *ret_plan = plan;
    return st;
}

/* Fills the plan from memory: with the loaded winner of exactly this problem, else with an answer. Returns false if
 * neither is in memory. */
static bool recall(fa2i_planner *planner, fa2i_class *of, bool unmapped, fa2i_plan *plan)
{
    const fa2i_winners *winners = &of->winners;
    const fa2i_choice *choice = NULL;
    fa2i_attempt attempt = {0};
    if (has_winners(planner, unmapped))
        choice = fa2i_choose_exact(winners->choices, winners->count, &planner->device->card, &plan->problem);
    if (choice == NULL)
        return fa2i_planner_recall_estimate(planner, of, unmapped, plan);
    fa2i_slot *slot = fa2i_kernels_slot(&planner->kernels, &choice->winner.kernel);
    if (slot == NULL || choice->fault != NULL || !fa2i_planner_is_ready(planner, slot))
        return false;
    fa2i_attempt_take(&attempt, slot);
    plan->unrounded = true;
    plan->ready.slot = slot;
    plan->origin = attempt.origin;
    fa2i_decide_exact(choice, &plan->decision);
    return true;
}

bool fa2i_planner_recall(fa2i_planner *planner, const fa2_problem *problem, bool unmapped,
                         fa2i_plan *ret_plan)
{
    fa2i_plan plan = {.problem = *problem, .decision.rule = FA2_RULE_DEFAULT};
    fa2i_class *of = fa2i_planner_class(planner, problem);
    const bool known =
        of != NULL && recall(planner, of, unmapped, &plan) && spread(planner, &plan) == FA2_OK;
    if (known)
        *ret_plan = plan;
    return known;
}
