/*
 * Lists the candidates of all problems and their artifact keys, and finds the problems that need no work.
 *
 * A second run ends here, so this phase only reads: one key per variant, one row per problem and candidate.
 */
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/ops/op.h"
#include "runtime/plan/choose.h"
#include "tuner/search/candidates.h"
#include "tuner/search/search.h"
#include "tuner/search/tune.h"

static fa2_status find_candidates(fa2i_findings *found, fa2i_tune_problem *problem, const fa2i_candidates *list)
{
    fa2_status st = FA2_OK;
    const size_t count = list->count;
    FA2_TRY(fa2i_candidates_check(list));
    FA2_TRY(FA2I_NEW(problem->candidates, count));
    FA2_TRY(FA2I_NEW(problem->predictions, count));
    problem->count = count;
    problem->model_us = list->variants[0].cost_us;
    for (size_t i = 0; i < count; i++)
        FA2_TRY(fa2i_findings_add(found, &list->variants[i], &list->keys[i], &problem->candidates[i]));
done:
    return st;
}

/* *ret_proven: this device has the winner and found it right. An imported winner was measured on another card of the
 * same name, and may never have been verified. Sets lost if only the code is missing. */
static fa2_status find_proven_winner(const fa2i_tune *tune, fa2i_tune_problem *problem, bool *ret_proven)
{
    fa2_status st = FA2_OK;
    fa2i_kernel kernel = {0};
    fa2i_verification verification = {0};
    const fa2i_key *key = &problem->winner.kernel;
    const int abi = fa2i_op_abi(&problem->problem);
    *ret_proven = false;
    if (fa2i_findings_refutation(&tune->found, key) != NULL)
        return FA2_OK;
    FA2_TRY(fa2i_cache_get_verification(tune->cache, tune->device, key, &verification));
    if (verification.outcome != FA2I_OUTCOME_OK)
        goto done;
    st = fa2i_cache_get_kernel(tune->cache, key, abi, true, &kernel);
    problem->lost = st == FA2_E_NOT_FOUND;
    if (problem->lost) {
        fa2i_kernel_done(&kernel);
        st = fa2i_cache_get_kernel(tune->cache, key, abi, false, &kernel);
    }
    FA2_TRY(st);
    memcpy(problem->variant, kernel.variant.text, sizeof problem->variant);
    *ret_proven = true;
done:
    fa2i_kernel_done(&kernel);
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

/* *ret_settled: all candidates of a problem are settled, and a measured winner is among them. */
static fa2_status find_settled(const fa2i_tune *tune, fa2i_tune_problem *problem, bool *ret_settled)
{
    fa2i_measurement measurement = {0};
    bool among = false;
    *ret_settled = problem->lost = false;
    fa2_status st = fa2i_cache_get_winner(tune->cache, tune->device, problem->id, &problem->winner);
    if (st != FA2_OK || problem->winner.measured == tune->gpu->modelled)
        return st == FA2_E_NOT_FOUND ? FA2_OK : st;
    for (size_t i = 0; i < problem->count; i++) {
        const fa2i_key *key = &tune->found.kernels[problem->candidates[i]].kernel.key;
        st = fa2i_cache_get_measurement(tune->cache, tune->device, problem->id, key, &measurement);
        if (st == FA2_E_NOT_FOUND || (st == FA2_OK && !measurement.settled))
            return FA2_OK;
        if (st != FA2_OK)
            return st;
        if (memcmp(key, &problem->winner.kernel, sizeof *key) == 0) {
            if (measurement.outcome != FA2I_OUTCOME_OK) /* it failed since */
                return FA2_OK;
            among = true;
            problem->winner_place = problem->candidates[i];
        }
    }
    st = find_proven_winner(tune, problem, ret_settled);
    *ret_settled = *ret_settled && (among || !problem->lost); /* a winner that is no candidate is not compiled again */
    problem->lost = problem->lost && *ret_settled;
    return st;
}

fa2_status fa2i_tune_look_again(fa2i_tune *tune, fa2i_tune_problem *problem)
{
    bool settled = false;
    const fa2i_winner before = problem->winner;
    if (problem->state != FA2I_PROBLEM_OPEN || tune->request->force)
        return FA2_OK;
    const fa2_status st = find_settled(tune, problem, &settled);
    settled = settled && !problem->lost; /* lost code was compiled before; if it still lacks, the problem is measured */
    problem->lost = false;
    /* A winner that was there before, but was not proven, was proven by this run. The problem is then measured
     * again. */
    const bool fresh = memcmp(&before.kernel, &problem->winner.kernel, sizeof before.kernel) != 0 ||
                       before.median_us < problem->winner.median_us || before.median_us > problem->winner.median_us;
    if (st == FA2_OK && settled && fresh) {
        problem->state = FA2I_PROBLEM_SETTLED;
        problem->complete = true;
        tune->found.by_others++;
    }
    return st;
}

/* Refuses a problem that needs more memory than the device has, before anything is compiled. Free memory is checked
 * later. */
static bool fits(size_t memory_bytes, fa2i_tune_problem *problem)
{
    const fa2i_case c = fa2i_case_of(&problem->problem, FA2I_TUNE_SEED);
    const size_t bytes = fa2i_case_bytes(&c);
    if (bytes <= memory_bytes)
        return true;
    problem->state = FA2I_PROBLEM_FAILED;
    if (bytes == SIZE_MAX)
        snprintf(problem->message, sizeof problem->message, "needs more device memory than can be counted");
    else
        snprintf(problem->message, sizeof problem->message, "needs %.1f MiB of device memory, the device has %.1f MiB",
                 (double)bytes / 0x1p20, (double)memory_bytes / 0x1p20);
    return false;
}

/* Lists its candidates, or says why it has none. */
static fa2_status list_problem(fa2i_tune *tune, fa2i_tune_problem *problem, const fa2i_candidates *list)
{
    if (!fits(tune->gpu->memory_bytes, problem))
        return FA2_OK;
    const fa2_status st = find_candidates(&tune->found, problem, list);
    if (st != FA2_E_UNSUPPORTED)
        return st;
    problem->state = FA2I_PROBLEM_UNSERVED;
    snprintf(problem->message, sizeof problem->message, "%s", fa2_last_message());
    return FA2_OK;
}

/* --dry-run writes nothing: a problem that the database lacks gets the id -1. */
static void find_ids_without_writing(fa2i_tune *tune)
{
    for (size_t i = 0; i < tune->found.problem_count; i++) {
        fa2i_tune_problem *p = &tune->found.problems[i];
        if (fa2i_cache_problem(tune->cache, &p->problem, &p->id) != FA2_OK)
            p->id = -1;
    }
}

fa2_status fa2i_tune_find_ids(fa2i_tune *tune)
{
    fa2_status st = FA2_OK;
    size_t count = 0;
    const fa2_problem **open = NULL;
    int64_t *ids = NULL;
    if (tune->request->dry_run) {
        find_ids_without_writing(tune);
        return FA2_OK;
    }
    FA2_TRY(FA2I_NEW(open, tune->found.problem_count));
    FA2_TRY(FA2I_NEW(ids, tune->found.problem_count));
    for (size_t i = 0; i < tune->found.problem_count; i++)
        if (tune->found.problems[i].state == FA2I_PROBLEM_OPEN)
            open[count++] = &tune->found.problems[i].problem;
    FA2_TRY(fa2i_cache_problems(tune->cache, open, count, ids));
    for (size_t i = tune->found.problem_count; i-- > 0;)
        if (tune->found.problems[i].state == FA2I_PROBLEM_OPEN)
            tune->found.problems[i].id = ids[--count];
done:
    fa2i_free(open);
    fa2i_free(ids);
    return st;
}

/* Finds out whether the problem needs any work. */
static fa2_status plan_problem(const fa2i_tune *tune, fa2i_tune_problem *problem)
{
    fa2_status st = FA2_OK;
    bool settled = false, dead = false;
    if (problem->state != FA2I_PROBLEM_OPEN)
        return FA2_OK;
    st = find_settled(tune, problem, &settled);
    settled = settled && !tune->request->force;
    problem->lost = problem->lost && settled;
    if (st == FA2_OK && !settled)
        st = fa2i_tune_find_dead(tune, problem, &dead);
    if (st != FA2_OK)
        return st;
    problem->complete = settled;
    problem->state = settled ? FA2I_PROBLEM_SETTLED : dead ? FA2I_PROBLEM_FAILED : FA2I_PROBLEM_OPEN;
    return FA2_OK;
}

/* Finds the compiler of this problem's winner, if it has one. */
static fa2_status find_compiler(fa2i_tune *tune, const fa2_problem *problem)
{
    fa2_status st = FA2_OK;
    int64_t id = 0;
    fa2i_winner winner = {0};
    fa2i_kernel kernel = {0};
    FA2_TRY(fa2i_cache_problem(tune->cache, problem, &id));
    FA2_TRY(fa2i_cache_get_winner(tune->cache, tune->device, id, &winner));
    FA2_TRY(fa2i_cache_get_kernel(tune->cache, &winner.kernel, fa2i_op_abi(problem), false, &kernel));
    fa2i_target_of(kernel.target, kernel.nvrtc, &tune->target);
done:
    fa2i_kernel_done(&kernel);
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

/* Without NVRTC, takes the compiler of the winners, or else of the device's newest kernel. So their keys identify what
 * is tuned. */
static fa2_status borrow_compiler(fa2i_tune *tune)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    char name[sizeof tune->target.name];
    int version = 0;
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && tune->target.nvrtc == 0 && i < tune->request->shapes->count; i++)
        st = find_compiler(tune, &tune->request->shapes->items[i]);
    if (st != FA2_OK || tune->target.nvrtc != 0)
        return st;
    st = fa2i_cache_get_compiler(tune->cache, tune->device, &version, name);
    if (st == FA2_E_NOT_FOUND)
        return fa2i_nvrtc_get(&nvrtc); /* its message says what is missing */
    if (st == FA2_OK)
        fa2i_target_of(name, version, &tune->target);
    return st;
}

/* Without NVRTC, checks that the code of every needed kernel is in the database. */
static fa2_status check_compiled(const fa2i_tune *tune)
{
    const fa2i_nvrtc_table *nvrtc = NULL;
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < tune->found.kernel_count; i++) {
        fa2i_kernel kernel = {0};
        bool found = true;
        if (tune->found.kernels[i].needed)
            st = fa2i_tune_find_stored(tune->cache, &tune->found.kernels[i], &kernel, &found);
        fa2i_kernel_done(&kernel);
        if (st == FA2_OK && !found)
            return fa2i_nvrtc_get(&nvrtc); /* its message says what is missing */
    }
    return st;
}

static fa2_status list_problems(fa2i_tune *tune)
{
    fa2_status st = FA2_OK;
    const fa2i_shapes *shapes = tune->request->shapes;
    fa2i_candidates *lists = NULL;
    const fa2i_candidates_for asked = {.card = &tune->gpu->card,
                                       .target = tune->target,
                                       .threads = tune->request->threads,
                                       .stop = tune->budget->stop};
    FA2_TRY(fa2i_candidates_list(shapes->items, shapes->count, &asked, &lists));
    for (size_t i = 0; i < shapes->count; i++) {
        tune->found.problems[i].problem = shapes->items[i];
        tune->found.problems[i].rank = i;
        tune->found.problems[i].calls = shapes->calls[i] > 0 ? shapes->calls[i] : 1;
        FA2_TRY(list_problem(tune, &tune->found.problems[i], &lists[i]));
    }
done:
    fa2i_candidates_free(lists, shapes->count);
    return st;
}

/* Loads what other cards found wrong. The runtime uses such kernels on no card (fa2i_cache_refutation), so they are not
 * compiled, verified or timed, and win nothing. After fa2-tune forget --failures they are tried again. */
static fa2_status find_refuted(fa2i_tune *tune)
{
    const fa2_status st =
        fa2i_cache_refutations(tune->cache, tune->device, &tune->found.refutations, &tune->found.refutation_count);
    for (size_t i = 0; st == FA2_OK && i < tune->found.kernel_count; i++) {
        fa2i_tune_kernel *k = &tune->found.kernels[i];
        const fa2i_refutation *by = fa2i_findings_refutation(&tune->found, &k->kernel.key);
        k->refuted = by != NULL;
        if (by == NULL)
            continue;
        k->verification = (fa2i_verification){.outcome = by->outcome};
        snprintf(k->verification.detail, sizeof k->verification.detail, "on another card, %.60s: %.400s", by->device,
                 by->detail);
    }
    return st;
}

fa2_status fa2i_tune_plan(fa2i_tune *tune)
{
    const size_t count = tune->request->shapes->count;
    fa2_status st = FA2_OK;
    FA2_TRY(FA2I_NEW(tune->found.problems, count));
    tune->found.problem_count = count;
    if (!tune->gpu->compiles)
        FA2_TRY(borrow_compiler(tune));
    FA2_TRY(list_problems(tune));
    FA2_TRY(fa2i_tune_find_ids(tune));
    FA2_TRY(find_refuted(tune));
    for (size_t i = 0; i < count; i++)
        FA2_TRY(plan_problem(tune, &tune->found.problems[i]));
    FA2_TRY(fa2i_tune_learn_stored(tune));
    FA2_TRY(fa2i_tune_order(tune));
    fa2i_findings_mark_needed(&tune->found);
    if (!tune->gpu->compiles)
        st = check_compiled(tune);
done:
    return st;
}
