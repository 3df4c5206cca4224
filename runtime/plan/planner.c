/*
 * Makes a plan: with the winner of exactly this problem, else with the best estimate.
 *
 * - A winner was the fastest of all kernels tried on its problem. Finding it takes one SQLite query per class and
 *   nothing else. If its kernel cannot be used, the estimate decides, which knows the other kernels measured on the
 *   problem. Each problem that the kernel won learns why.
 * - The log reports a kernel that cannot be used once, when that is found. Later plans pass over it silently. A refused
 *   kernel is not tried again. An unreadable one is tried again after a second.
 * - Later problems of a class use what earlier ones fetched: winners.c, answers.c, kernels.c. A problem of a
 *   known class asks SQLite nothing, with two exceptions. Once a second, it asks if the database was written. It asks
 *   again for a winner whose code is lost or refused and could not be compiled again.
 * - Estimates are made for the ends of steps (runtime/ops/steps.h), and the answers are kept. So a decode that grows by
 *   a token rarely asks a new question. Answers are forgotten when the database was written, because there may be more
 *   evidence, and more kernels that need no compiling.
 * - If shipped times know exactly this problem, the question is asked without rounding, like for tuned problems.
 */
#include "runtime/plan/planner.h"

#include <stdio.h>
#include <string.h>
#include "cache/shipped/shipped.h"
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/base/text.h"
#include "runtime/ops/op.h"
#include "runtime/plan/database.h"
#include "runtime/plan/notes.h"
#include "runtime/plan/planner_candidates.h"
#include "runtime/plan/planner_kernels.h"

fa2_status fa2i_planner_init(fa2i_planner *planner, const fa2i_device *device, const fa2_config *config)
{
    fa2_status st = FA2_OK;
    *planner = (fa2i_planner){.device = device,
                              .arch = config->arch,
                              .log = config->log,
                              .log_at = config->log_at,
                              .log_user = config->log_user,
                              .log_level = config->log_level,
                              .never_writes = config->read_only != 0,
                              .no_compiler = config->never_compile != 0 ? FA2_E_FORBIDDEN : FA2_OK,
                              .kernels = {.device = device}};
    FA2_TRY(fa2i_cuda_is_software(device->cuda, &planner->as_ptx));
    FA2_TRY(fa2i_planner_open(planner, config->database));
    if (config->database == NULL || config->database[0] != '\0')
        FA2_TRY(fa2i_planner_find_files(planner));
done:
    if (st != FA2_OK)
        fa2i_planner_done(planner);
    return st;
}

void fa2i_planner_done(fa2i_planner *planner)
{
    fa2i_planner_write_notes(planner, true);
    while (planner->classes != NULL) {
        fa2i_class *of = planner->classes;
        planner->classes = of->next;
        fa2i_winners_done(&of->winners);
        fa2i_free(of);
    }
    for (int op = 0; op < FA2I_OPS; op++) {
        fa2i_evidence_done(&planner->calibrations[op].evidence);
        fa2i_evidence_done(&planner->calibrations[op].shipped);
    }
    fa2i_answers_done(&planner->answers);
    fa2i_kernels_done(&planner->kernels);
    fa2i_generator_destroy(planner->generator);
    fa2i_cache_close(planner->cache);
    fa2i_layers_close(&planner->layers);
    fa2i_free(planner->share);
    fa2i_free(planner->database);
    *planner = (fa2i_planner){0};
}

/* ---- winners ---- */

/* Updates the winners of a class. An unreadable database is logged and is no error, because it is a cache. */
static fa2_status update_class(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem)
{
    bool read = false;
    fa2_status st =
        fa2i_winners_update(&of->winners, planner->cache, &planner->layers, planner->device->card.arch, problem, &read);
    if (read) {
        of->is_untuned = of->winners.count == 0;
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
    const fa2i_outcome known = fa2i_layers_refutation(planner->cache, &planner->layers, &choice->winner.kernel);
    const fa2i_outcome outcome = known != FA2I_OUTCOME_OK ? known : FA2I_OUTCOME_WRONG;
    fa2i_slot *slot = fa2i_kernels_slot(&planner->kernels, &choice->winner.kernel);
    if (slot == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a kernel's record");
    (void)fa2i_fail(FA2_E_UNSUPPORTED, "%s%s%s%s%s%s", choice->variant, choice->variant[0] == '\0' ? "" : ": ",
                    choice->fault, choice->refuted ? " (" : "", choice->refuted ? fa2i_outcome_string(outcome) : "",
                    choice->refuted ? ")" : "");
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

/* ---- estimates ---- */

/* Logs once per class, because the cause is that the class was not tuned, and there may be many shapes. */
static void tell(const fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem, const fa2i_slot *slot)
{
    char found[FA2I_PROBLEM_CHARS + 32];
    if (of->told_default || planner->predicts)
        return;
    of->told_default = true;
    snprintf(found, sizeof found, of->is_untuned ? "nothing is tuned for %s" : "nothing tuned for %s can be used",
             fa2i_problem_shape(problem).text);
    fa2i_planner_log(planner, FA2_LOG_WARNING,
                     "%s: taking %s by the cost model (not repeated for other shapes with %s)", found,
                     slot->loaded.variant.text, of->key);
}

/* ---- trying options ---- */

/* The result of trying an option. Each option is tried once. */
typedef struct outcome {
    bool is_known;
    bool is_considered; /* it can be used, or it was reported why not */
    fa2i_trial trial;
    fa2i_attempt attempt;
} outcome;

typedef struct trying {
    fa2i_planner *planner;
    fa2i_class *of;
    const fa2_problem *problem;
    bool unmapped;
    outcome *outcomes; /* one per option */
    const fa2i_option *options;
    bool found;          /* an option can be used */
    bool lacks_compiler; /* an option cannot be used, because nothing is compiled */
    bool may_change;     /* an option cannot be used, for a reason that neither the database nor the scripts show */
    fa2_status refusal;  /* of the last option that was tried and cannot be used */
    fa2i_decision *decision;
    fa2i_text passed; /* fa2i_class_answer.passed */
} trying;

/* Sets *ret_serves to whether a kernel serves unmapped calls (planner.h), judged by its text. */
static fa2_status serves_unmapped(const trying *t, const fa2i_option *option, bool *ret_serves)
{
    fa2i_variant variant;
    fa2i_grid grid;
    const fa2i_op *op = fa2i_op_of(t->problem);
    const fa2_status st = fa2i_generator_variant(t->planner->generator, option->text, &variant);
    *ret_serves = st == FA2_OK && variant.recipe.map_count == 0 && variant.recipe.waves == 0 &&
                  op->grid(&t->planner->device->card, &variant.recipe, t->problem, &grid) == FA2_OK &&
                  grid.workspace_bytes <= op->unmapped_bytes(t->problem);
    return st == FA2_E_NOT_FOUND ? FA2_OK : st; /* a text that is no variant serves no call */
}

/* Returns whether a kernel stays unusable as long as database and scripts stay the same. That holds if it was refuted,
 * or if the scripts do not know it. A kernel that this compiler or driver refuses may suit another one. */
static bool is_lasting(const fa2i_attempt *attempt)
{
    return !attempt->lost && !attempt->for_now && !fa2i_planner_lacks_compiler(attempt->refusal) &&
           (attempt->refuted != FA2I_OUTCOME_OK || attempt->refusal == FA2_E_NOT_FOUND);
}

/* Remembers why an option cannot be used. The last message says why. */
static void note(trying *t, const outcome *found)
{
    if (!found->is_considered || found->trial.usable)
        return;
    t->refusal = found->attempt.refusal;
    t->lacks_compiler |= fa2i_planner_lacks_compiler(t->refusal);
    t->may_change |= !is_lasting(&found->attempt);
}

/* Notes an option that cannot be used, while none before it can. */
static void pass_over(trying *t, const fa2i_option *option, const fa2i_attempt *attempt)
{
    fa2i_decide_passed_over(option->text, attempt->why, t->decision);
    fa2i_text_add(&t->passed, "%s\n", option->text);
}

static bool is_known_to_spill(const trying *t, const fa2i_option *option)
{
    const fa2i_evidence *evidence = &t->planner->calibrations[t->problem->op].evidence;
    const fa2i_known_kernel *known = option->kernel == FA2I_NONE ? NULL : &evidence->kernels[option->kernel];
    return option->rests == FA2I_RESTS_MODEL && known != NULL && !known->shipped && known->is_known_to_spill;
}

/* Has an option's kernel. A kernel that is known to spill is only looked at, and is loaded when it is chosen. */
static fa2_status have(const trying *t, const fa2i_option *option, fa2i_attempt *ret_attempt)
{
    if (is_known_to_spill(t, option)) {
        const fa2_status st = fa2i_planner_look(t->planner, t->problem, option, ret_attempt);
        if (st != FA2_OK || (ret_attempt->slot != NULL && ret_attempt->slot->spills > 0))
            return st;
        *ret_attempt = (fa2i_attempt){0};
    }
    return fa2i_planner_have(t->planner, t->of, t->problem, option, ret_attempt);
}

static fa2_status find_outcome(const trying *t, const fa2i_option *option, outcome *ret_outcome)
{
    outcome found = {.is_known = true, .is_considered = true};
    if (t->unmapped) {
        const fa2_status known = serves_unmapped(t, option, &found.is_considered);
        found.trial.predicted = !found.is_considered;
        if (known != FA2_OK)
            return known;
    }
    const fa2_status st = found.is_considered ? have(t, option, &found.attempt) : FA2_OK;
    if (st != FA2_OK)
        return st;
    if (found.attempt.slot != NULL)
        found.trial = (fa2i_trial){.usable = true, .spills = found.attempt.slot->spills};
    else
        found.trial.predicted |= found.attempt.predicted;
    *ret_outcome = found;
    return FA2_OK;
}

static fa2_status try_option(void *user, const fa2i_option *option, fa2i_trial *ret_trial)
{
    trying *t = user;
    outcome *of_option = &t->outcomes[option - t->options];
    if (!of_option->is_known) {
        const fa2_status st = find_outcome(t, option, of_option);
        if (st != FA2_OK)
            return st;
        note(t, of_option);
    }
    *ret_trial = of_option->trial;
    t->found |= of_option->trial.usable;
    if (of_option->is_considered && !t->found)
        pass_over(t, option, &of_option->attempt);
    return FA2_OK;
}

/* Loads the chosen kernel if it was only looked at. */
static fa2_status load_chosen(trying *t, size_t chosen)
{
    outcome *of_chosen = &t->outcomes[chosen];
    if (fa2i_planner_is_ready(t->planner, of_chosen->attempt.slot))
        return FA2_OK;
    of_chosen->attempt = (fa2i_attempt){0};
    const fa2_status st = fa2i_planner_have(t->planner, t->of, t->problem, &t->options[chosen], &of_chosen->attempt);
    if (st == FA2_OK && of_chosen->attempt.slot == NULL) {
        of_chosen->trial = (fa2i_trial){.predicted = of_chosen->attempt.predicted};
        note(t, of_chosen);
    }
    return st;
}

/* Has the best option that can be used. *ret_chosen is count if none can. If the option that spills least cannot be
 * loaded, the choice is made again among the others. */
static fa2_status choose(trying *t, size_t count, size_t *ret_chosen, size_t *ret_tried)
{
    for (;;) {
        fa2_status st = fa2i_choose_option(t->options, count, try_option, t, ret_chosen, ret_tried);
        if (st != FA2_OK || *ret_chosen == count)
            return st;
        st = load_chosen(t, *ret_chosen);
        if (st != FA2_OK || t->outcomes[*ret_chosen].trial.usable)
            return st;
        t->found = false;
        *t->decision = (fa2i_decision){.passed_count = 0};
        fa2i_text_done(&t->passed);
    }
}

/* Fails because no option can be used. The last message says why the last one cannot. */
static fa2_status fail(const trying *t, size_t tried)
{
    if (t->lacks_compiler) {
        const fa2_status st = fa2i_planner_fail_compiler(t->planner, t->problem);
        if (st != FA2_OK)
            return st;
    }
    return fa2i_fail_prefix(t->refusal == FA2_OK ? FA2_E_NOT_FOUND : t->refusal,
                            "no kernel for %s: the %zu best variants fail, the last",
                            fa2i_problem_shape(t->problem).text, tried);
}

/* ---- answers ---- */

/* Estimates for the question's problem. plan: the plan of the call's problem, for messages. *ret_is_final: another
 * process would find the same answer. */
static fa2_status estimate(fa2i_planner *planner, fa2i_class *of, const fa2i_plan *plan, const fa2_problem *asked,
                           fa2i_class_answer *answer, bool *ret_is_final)
{
    fa2_status st = FA2_OK;
    fa2i_decision passed = {.passed_count = 0};
    fa2i_option *options = NULL;
    size_t count = 0, chosen = 0;
    trying t = {
        .planner = planner, .of = of, .problem = &plan->problem, .unmapped = answer->unmapped, .decision = &passed};

    FA2_TRY(fa2i_planner_rank(planner, of, asked, &options, &count));
    t.options = options;
    FA2_TRY(FA2I_NEW(t.outcomes, count));
    FA2_TRY(choose(&t, count, &chosen, &answer->tried));
    if (chosen == count)
        FA2_TRY(fail(&t, answer->tried));
    FA2_TRY(fa2i_text_take(&t.passed, &answer->passed));
    answer->asked = *asked;
    answer->slot = t.outcomes[chosen].attempt.slot;
    answer->origin = t.outcomes[chosen].attempt.origin;
    fa2i_decide_option(options, chosen, &planner->calibrations[asked->op].evidence, asked, &planner->device->card,
                       &answer->decision);
    *ret_is_final = !t.may_change;
    answer->decision.passed_count = passed.passed_count;
    memcpy(answer->decision.passed_over, passed.passed_over, sizeof passed.passed_over);
    memcpy(answer->decision.why, passed.why, sizeof passed.why);
    if (answer->decision.rule == FA2_RULE_DEFAULT)
        tell(planner, of, &plan->problem, answer->slot);
done:
    fa2i_text_done(&t.passed);
    fa2i_free(t.outcomes);
    fa2i_free(options);
    return st;
}

/* Keeps a copy of an answer, takes over its `passed`, and borrows the copy. An earlier answer to the question stays. */
static fa2_status add_answer(fa2i_planner *planner, const fa2i_class *of, const fa2i_class_answer *found,
                             const fa2i_class_answer **ret_answer)
{
    fa2i_class_answer *answer = fa2i_answers_find(&planner->answers, &found->asked, found->unmapped, of->reading);
    if (answer != NULL) {
        fa2i_free(found->passed);
        *ret_answer = answer;
        return FA2_OK;
    }
    answer = fa2i_alloc(sizeof(*answer));
    if (answer == NULL) {
        fa2i_free(found->passed);
        return fa2i_fail(FA2_E_MEMORY, "no memory for an answer of the cost model");
    }
    *answer = *found;
    answer->reading = of->reading;
    const fa2_status st = fa2i_answers_add(&planner->answers, answer);
    if (st == FA2_OK)
        *ret_answer = answer;
    else
        fa2i_answer_free(answer);
    return st;
}

/* Returns whether a text is one of these lines. lines may be NULL. */
static bool is_line(const char *lines, const char *text)
{
    const size_t chars = strlen(text);
    for (; lines != NULL && *lines != '\0'; lines += strcspn(lines, "\n") + 1)
        if (strcspn(lines, "\n") == chars && memcmp(lines, text, chars) == 0)
            return true;
    return false;
}

/* Builds the question to the model for a plan's problem. Sets plan->unrounded if the question is about exactly this
 * problem. */
static fa2i_question find_question(const fa2i_planner *planner, bool unmapped, fa2i_plan *plan)
{
    const fa2i_evidence *evidence = &planner->calibrations[plan->problem.op].evidence;
    /* If a kernel must fit the workspace of an unmapped call, steps do not apply. */
    plan->unrounded |= unmapped || fa2i_shipped_knows(evidence, &planner->device->card, &plan->problem);
    return (fa2i_question){.asked = fa2i_planner_asked(planner, plan), .exact = plan->unrounded, .unmapped = unmapped};
}

static void take_answer(const fa2i_class_answer *answer, fa2i_plan *plan)
{
    plan->ready.slot = answer->slot;
    plan->origin = answer->origin;
    plan->tried = answer->tried;
    plan->decision = answer->decision;
    if (memcmp(&answer->asked, &plan->problem, sizeof plan->problem) != 0)
        fa2i_decide_for_other(&plan->problem, &plan->decision);
}

/* Returns whether the generator already knows all evidence. */
static bool is_calibrated(const fa2i_planner *planner, const fa2i_class *of, fa2_op op)
{
    const fa2i_calibration *calibration = &planner->calibrations[op];
    return planner->generator != NULL && calibration->is_calibrated && calibration->version == of->winners.version;
}

/* Looks for an earlier process's answer to a question, and makes its kernel ready. found->slot is NULL if that is not
 * possible. */
static fa2_status find_note(fa2i_planner *planner, const fa2i_class *of, const fa2_problem *problem,
                            const fa2i_question *question, fa2i_class_answer *found)
{
    fa2i_attempt attempt = {0};
    fa2i_key kernel;
    bool is_noted = false;
    fa2_status st = fa2i_planner_find_note(planner, of, question, found, &kernel, &is_noted);
    if (st != FA2_OK || !is_noted)
        return st;
    st = fa2i_planner_use_stored(planner, of, problem, &kernel, &attempt);
    found->slot = st == FA2_OK ? attempt.slot : NULL;
    found->origin = attempt.origin;
    return st == FA2_E_MEMORY ? st : FA2_OK; /* other failures come again when the model is asked */
}

/* Looks for an earlier process's answer, if asking the model would take long. *ret_answer is NULL if nothing was
 * found. */
static fa2_status find_stored(fa2i_planner *planner, fa2i_class *of, bool unmapped, const fa2i_plan *plan,
                              const fa2i_class_answer **ret_answer)
{
    fa2_status st = FA2_OK;
    const fa2_problem asked = fa2i_planner_asked(planner, plan);
    const fa2i_question questions[] = {{.asked = plan->problem, .exact = true, .unmapped = unmapped}, {.asked = asked}};
    const bool alone = unmapped || plan->unrounded;
    fa2i_class_answer found = {.slot = NULL};
    *ret_answer = NULL;
    if (is_calibrated(planner, of, plan->problem.op) || plan->decision.replaces)
        return FA2_OK;
    const fa2i_class_answer *known = fa2i_answers_find(&planner->answers, &asked, false, of->reading);
    if (!alone && known != NULL && known->for_step) {
        *ret_answer = known;
        return FA2_OK;
    }
    for (int i = 0; found.slot == NULL && i < (alone ? 1 : 2); i++)
        FA2_TRY(find_note(planner, of, &plan->problem, &questions[i], &found));
    if (found.slot == NULL)
        return FA2_OK;
    if (found.decision.rule == FA2_RULE_DEFAULT)
        tell(planner, of, &plan->problem, found.slot);
    st = add_answer(planner, of, &found, ret_answer);
done:
    return st;
}

static fa2_status ask_model(fa2i_planner *planner, fa2i_class *of, bool unmapped, fa2i_plan *plan,
                            const fa2i_class_answer **ret_answer)
{
    fa2_status st = FA2_OK;
    bool is_final = false;
    FA2_TRY(fa2i_planner_learn(planner, of, &plan->problem));
    const fa2i_question question = find_question(planner, unmapped, plan);
    *ret_answer = fa2i_answers_find(&planner->answers, &question.asked, unmapped, of->reading);
    if (*ret_answer != NULL)
        return FA2_OK;
    fa2i_class_answer found = {.asked = question.asked, .unmapped = unmapped};
    FA2_TRY(estimate(planner, of, plan, &question.asked, &found, &is_final));
    FA2_TRY(add_answer(planner, of, &found, ret_answer));
    if (is_final && !plan->decision.replaces)
        fa2i_planner_note_answer(planner, of, &question, *ret_answer);
done:
    return st;
}

/* Fills in slot, decision and tried of a plan whose problem is set and belongs to this class. unmapped: see planner.h.
 * If plan->unrounded is set, this problem was tuned, its winner cannot be used, and the decision says so. On return,
 * also after an error, plan->unrounded tells for which problem kernels were compared. */
static fa2_status pick_estimate(fa2i_planner *planner, fa2i_class *of, bool unmapped, fa2i_plan *plan)
{
    fa2_status st = FA2_OK;
    const fa2i_decision without = plan->decision; /* the winner, if it cannot be used */
    const fa2i_class_answer *answer = NULL;
    FA2_TRY(find_stored(planner, of, unmapped, plan, &answer));
    if (answer == NULL)
        FA2_TRY(ask_model(planner, of, unmapped, plan, &answer));
    else
        plan->unrounded |= !answer->for_step;
    take_answer(answer, plan);
    if (without.replaces)
        fa2i_decide_replaces(without.passed_over, without.why, is_line(answer->passed, without.passed_over),
                             &plan->decision);
done:
    return st;
}

/* The same from an answer in memory. Returns false if there is no such answer. */
static bool recall_estimate(fa2i_planner *planner, const fa2i_class *of, bool unmapped, fa2i_plan *plan)
{
    const fa2i_question question = find_question(planner, unmapped, plan);
    const fa2i_class_answer *answer = fa2i_answers_find(&planner->answers, &question.asked, unmapped, of->reading);
    if (answer != NULL)
        take_answer(answer, plan);
    return answer != NULL;
}

/* ---- plans ---- */

/* Works out how the plan's kernel is launched. */
static fa2_status spread(const fa2i_planner *planner, fa2i_plan *plan)
{
    fa2i_ready *ready = &plan->ready;
    const fa2i_op *op = fa2i_op_of(&plan->problem);
    const fa2i_recipe *recipe = &ready->slot->loaded.variant.recipe;
    const fa2_status st = op->grid(&planner->device->card, recipe, &plan->problem, &ready->grid);
    ready->rule = plan->decision.rule;
    ready->workspace_bytes = ready->grid.workspace_bytes;
    if (recipe->map_count > 0 && ready->workspace_bytes < op->unmapped_bytes(&plan->problem))
        ready->workspace_bytes = op->unmapped_bytes(&plan->problem);
    return st;
}

/* Returns whether a database can have winners for such a plan. */
static bool has_winners(const fa2i_planner *planner, bool unmapped)
{
    return (planner->cache != NULL || planner->layers.count > 0) && planner->arch == 0 && !unmapped;
}

/* Logs a choice, for who wants to see each. */
static void tell_choice(const fa2i_planner *planner, const fa2i_plan *plan, int64_t began_ns)
{
    static const char *const origins[] = {[FA2I_ORIGIN_STORED] = "code from a database",
                                          [FA2I_ORIGIN_COMPILED] = "compiled here",
                                          [FA2I_ORIGIN_REMADE] = "compiled again",
                                          [FA2I_ORIGIN_REFUSED] = "compiled again"};
    if (planner->log_level < FA2_LOG_DEBUG || planner->predicts)
        return;
    fa2i_planner_log(planner, FA2_LOG_DEBUG, "%s: %s by the rule %s, %s, after %.0f us",
                     fa2i_problem_shape(&plan->problem).text, plan->ready.slot->loaded.variant.text,
                     fa2_rule_string(plan->decision.rule), origins[plan->origin],
                     (double)(fa2i_clock_ns() - began_ns) / 1e3);
}

fa2_status fa2i_planner_make(fa2i_planner *planner, const fa2_problem *problem, bool unmapped, fa2i_plan *ret_plan)
{
    fa2_status st = FA2_OK;
    fa2i_plan plan = {.problem = *problem, .decision.rule = FA2_RULE_DEFAULT};
    fa2i_class *of = NULL;
    const int64_t began_ns = fa2i_clock_ns();
    FA2_TRY(fa2i_planner_follow_file(planner));
    if (planner->cache != NULL)
        fa2i_cache_begin_call(planner->cache);
    of = fa2i_planner_class(planner, problem);
    if (of == NULL)
        FA2_TRY(FA2_E_MEMORY);
    if (has_winners(planner, unmapped))
        FA2_TRY(pick_exact(planner, of, &plan));
    if (plan.ready.slot == NULL)
        FA2_TRY(pick_estimate(planner, of, unmapped, &plan));
    FA2_TRY(spread(planner, &plan));
    tell_choice(planner, &plan, began_ns);
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
        return recall_estimate(planner, of, unmapped, plan);
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

bool fa2i_planner_recall(fa2i_planner *planner, const fa2_problem *problem, bool unmapped, fa2i_plan *ret_plan)
{
    fa2i_plan plan = {.problem = *problem, .decision.rule = FA2_RULE_DEFAULT};
    fa2i_class *of = fa2i_planner_class(planner, problem);
    const bool known = of != NULL && recall(planner, of, unmapped, &plan) && spread(planner, &plan) == FA2_OK;
    if (known)
        *ret_plan = plan;
    return known;
}

/* ---- alternatives ---- */

typedef struct looking {
    fa2i_planner *planner;
    fa2_problem asked;
} looking;

static fa2_status look(void *user, const fa2i_option *option, fa2i_trial *ret_trial)
{
    looking *l = user;
    fa2i_attempt attempt = {0};
    const fa2_status st = fa2i_planner_look(l->planner, &l->asked, option, &attempt);
    if (st == FA2_OK && attempt.slot != NULL)
        *ret_trial = (fa2i_trial){.usable = true, .spills = attempt.slot->spills};
    return st;
}

static fa2_status find_runner_up(fa2i_planner *planner, const fa2i_plan *plan, fa2i_runner_up *ret_runner_up)
{
    fa2_status st = FA2_OK;
    fa2i_option *options = NULL;
    size_t count = 0;
    looking l = {.planner = planner, .asked = fa2i_planner_asked(planner, plan)};
    FA2_TRY(fa2i_planner_options(planner, plan, &options, &count));
    FA2_TRY(fa2i_choose_runner_up(options, count, &plan->decision, plan->ready.slot->loaded.variant.text, look, &l,
                                  ret_runner_up));
done:
    fa2i_free(options);
    return st;
}

fa2_status fa2i_planner_find_runner_up(fa2i_planner *planner, const fa2i_plan *plan, fa2i_runner_up *ret_runner_up)
{
    const fa2_problem asked = fa2i_planner_asked(planner, plan);
    fa2i_class *of = fa2i_planner_class(planner, &asked);
    if (of == NULL)
        return FA2_E_MEMORY;
    fa2i_class_answer *answer = fa2i_answers_find(&planner->answers, &asked, false, of->reading);
    if (answer == NULL || answer->slot != plan->ready.slot)
        return find_runner_up(planner, plan, ret_runner_up);
    if (!answer->knows_runner_up) {
        const fa2_status st = find_runner_up(planner, plan, &answer->runner_up);
        if (st != FA2_OK)
            return st;
        answer->knows_runner_up = true;
    }
    *ret_runner_up = answer->runner_up;
    return FA2_OK;
}
