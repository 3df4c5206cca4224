/*
 * Timing. For each open problem, a search among the kernels that can run, and a check of the finalists on the problem
 * itself. Then measurements and winner go into the database (timing_rows.c).
 *
 * A continued search leaves out settled candidates, except the default and the winner so far. These two are always
 * timed again, because times of different sessions are not compared.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/search/timing.h"

/* ---- contenders ---- */

static void add_contender(fa2i_timing *t, size_t kernel)
{
    const fa2i_kernel *k = &t->tune->found.kernels[kernel].kernel;
    t->contenders[t->count] = (fa2i_contender){.text = k->variant.text,
                                               .smem_bytes = fa2i_recipe_main(&k->variant.recipe)->smem_bytes,
                                               .registers = k->registers};
    t->entries[t->count] = (fa2i_timing_entry){.kernel = kernel};
    t->ids[t->count++] = (uint32_t)kernel;
}

/* Says whether a candidate is not worth a measurement. A candidate that was not worth compiling cannot be measured,
 * either. */
static bool is_left_out(const fa2i_timing *t, size_t candidate)
{
    const fa2i_tune_kernel *k = &t->tune->found.kernels[t->problem->candidates[candidate]];
    return !k->known || t->problem->predictions[candidate].hopeless;
}

/* Fills the contenders: the default first, then usable candidates that are neither settled nor left out. again:
 * includes candidates that are settled with a time. *ret_open: the number of usable candidates that are not settled. */
static fa2_status gather(fa2i_timing *t, bool again, size_t *ret_open)
{
    bool has_default = false;
    t->count = t->left_count = t->unusable_count = *ret_open = 0;
    for (size_t i = 0; i < t->problem->count; i++) {
        size_t kernel = t->problem->candidates[i];
        fa2i_measurement row = {0};
        fa2_status st = fa2i_cache_get_measurement(t->tune->cache, t->tune->device, t->problem->id,
                                                   &t->tune->found.kernels[kernel].kernel.key, &row);
        const bool settled = st == FA2_OK && row.settled && !t->tune->request->force;
        if (st != FA2_OK && st != FA2_E_NOT_FOUND)
            return st;
        if (!settled && is_left_out(t, i) && (has_default || !t->tune->found.kernels[kernel].known)) {
            t->left[t->left_count++] = kernel;
            continue;
        }
        if (!fa2i_findings_usable(&t->tune->found, t->problem, kernel)) {
            if (!settled || (t->tune->found.kernels[kernel].refuted && row.outcome == FA2I_OUTCOME_OK))
                t->unusable[t->unusable_count++] = kernel;
            continue;
        }
        if (settled && row.outcome != FA2I_OUTCOME_OK)
            continue;
        *ret_open += !settled;
        /* The first one that can run is the default, because candidates come in the order of the cost model. */
        if (!settled || again || !has_default || fa2i_tune_is_winner(t->tune, t->problem, kernel))
            add_contender(t, kernel);
        has_default = true;
    }
    return FA2_OK;
}

/* Teaches the estimates what was measured. A single time says nothing about other kernels. */
static fa2_status learn(const fa2i_timing *t)
{
    fa2_status st = FA2_OK;
    size_t count = 0;
    size_t *kernels = NULL;
    double *us = NULL;
    FA2_TRY(FA2I_NEW(kernels, t->count));
    FA2_TRY(FA2I_NEW(us, t->count));
    for (size_t i = 0; i < t->count; i++) {
        if (t->contenders[i].outcome != FA2I_OUTCOME_OK || t->contenders[i].statistics.median <= 0)
            continue;
        kernels[count] = t->entries[i].kernel;
        us[count++] = t->contenders[i].statistics.median;
    }
    if (count > 1)
        st = fa2i_tune_learn(t->tune, &t->problem->problem, kernels, us, count);
done:
    fa2i_free(kernels);
    fa2i_free(us);
    return st;
}

static fa2_status alloc_timing(fa2i_timing *t)
{
    fa2_status st = FA2_OK;
    const size_t count = t->problem->count;
    FA2_TRY(FA2I_NEW(t->contenders, count));
    FA2_TRY(FA2I_NEW(t->entries, count));
    FA2_TRY(FA2I_NEW(t->ids, count));
    FA2_TRY(FA2I_NEW(t->failures, count));
    FA2_TRY(FA2I_NEW(t->left, count));
    FA2_TRY(FA2I_NEW(t->unusable, count));
done:
    return st;
}

static void timing_done(fa2i_timing *t)
{
    fa2i_free(t->contenders);
    fa2i_free(t->entries);
    fa2i_free(t->ids);
    fa2i_free(t->failures);
    fa2i_free(t->left);
    fa2i_free(t->unusable);
    fa2i_free(t->output);
    fa2i_expected_done(&t->expected);
}

/* ---- search and check ---- */

static fa2_status sample(void *user, fa2i_sample *samples, size_t count, int launches, double best_us)
{
    fa2i_timing *t = user;
    fa2_status st = fa2i_worker_sample(t->tune->worker, samples, count, t->ids, launches, best_us, t->failures);
    for (size_t i = 0; i < t->count && st == FA2_OK; i++) {
        if (t->failures[i].outcome == FA2I_OUTCOME_OK)
            continue;
        t->contenders[i].outcome = t->failures[i].outcome;
        st = fa2i_timing_put_failure(t, i);
    }
    return st;
}

static bool spent(void *user)
{
    const fa2i_timing *t = user;
    return fa2i_budget_is_spent(t->tune->budget);
}

/* Checks a contender on sampled rows of the problem itself. If it is wrong, it is out. */
static fa2_status check_contender(fa2i_timing *t, size_t i)
{
    fa2i_verification verdict = {0};
    uint32_t overwritten = 0;
    fa2_status st = fa2i_worker_check(t->tune->worker, t->ids[i], t->expected.places, t->expected.place_count,
                                      t->output, t->expected.output_bytes, &overwritten, &t->failures[i]);
    if (st != FA2_OK || fa2i_budget_is_stopped(t->tune->budget)) /* find_winner checks this, too */
        return st;
    if (t->failures[i].outcome != FA2I_OUTCOME_OK && t->failures[i].blame == FA2I_BLAME_IMAGE)
        return fa2i_worker_misfit(t->failures[i].detail);
    if (t->failures[i].outcome == FA2I_OUTCOME_OK) {
        fa2i_expected_judge(&t->expected, "this problem", t->output, overwritten, &verdict);
        t->entries[i].max_error = verdict.max_error;
        t->failures[i].outcome = verdict.outcome;
        memcpy(t->failures[i].detail, verdict.detail, sizeof verdict.detail);
        if (verdict.outcome != FA2I_OUTCOME_OK)
            st = fa2i_timing_refute(t, i, &verdict);
        if (st != FA2_OK)
            return st;
    }
    t->entries[i].checked = t->failures[i].outcome == FA2I_OUTCOME_OK;
    t->contenders[i].outcome = t->failures[i].outcome;
    return t->entries[i].checked ? FA2_OK : fa2i_timing_put_failure(t, i);
}

/* Checks all finalists. *ret_winner is the best contender that is right. It is t->count if no contender is right, or if
 * the user stops. */
static fa2_status find_winner(fa2i_timing *t, size_t *ret_winner)
{
    fa2_status st = FA2_OK;
    size_t winner = t->count;
    FA2_TRY(fa2i_expected_sampled(&t->c, FA2I_TUNE_SEED + 1, t->tune->request->threads, &t->expected));
    FA2_TRY(fa2i_new(&t->output, t->expected.output_bytes, 1));
    for (size_t i = 0; i < t->count && !fa2i_budget_is_stopped(t->tune->budget); i++)
        if (t->contenders[i].finalist && t->contenders[i].outcome == FA2I_OUTCOME_OK)
            FA2_TRY(check_contender(t, i));
    winner = fa2i_search_pick(t->contenders, t->count, 0);
    while (winner < t->count && !t->entries[winner].checked && !fa2i_budget_is_stopped(t->tune->budget)) {
        FA2_TRY(check_contender(t, winner));
        winner = fa2i_search_pick(t->contenders, t->count, 0);
    }
    *ret_winner = winner < t->count && t->entries[winner].checked ? winner : t->count;
done:
    return st;
}

/* Sets whole: with --force, a problem that has a winner is measured wholly or stays as it was. */
static fa2_status find_whole(fa2i_timing *t)
{
    fa2i_winner winner;
    const fa2_status st = t->tune->request->force
                              ? fa2i_cache_get_winner(t->tune->cache, t->tune->device, t->problem->id, &winner)
                              : FA2_E_NOT_FOUND;
    t->whole = st == FA2_OK;
    return st == FA2_E_NOT_FOUND ? FA2_OK : st;
}

static fa2_status fail_problem(fa2i_timing *t, const char *why)
{
    t->problem->state = FA2I_PROBLEM_FAILED;
    snprintf(t->problem->message, sizeof t->problem->message, "%s", why);
    return FA2_OK;
}

/* No kernel can run. If some were left out, they are wanted in the next stage. Otherwise the problem fails; the
 * database knows all failures. */
static fa2_status give_up(fa2i_timing *t)
{
    fa2_status st = FA2_OK;
    bool dead = false;
    if (t->left_count > 0 && !t->problem->all_wanted) {
        t->problem->all_wanted = true;
        t->problem->staged = false;
        return FA2_OK;
    }
    FA2_TRY(fa2i_timing_put_unusable(t));
    FA2_TRY(fail_problem(
        t, t->whole ? "no variant ran this time, for the reasons above; what was tuned before stays. If the "
                      "device is to blame, tune with --force again when it is well; else drop it with "
                      "fa2-tune forget --shape"
                    : "no variant of this problem can run: see fa2-tune show"));
    FA2_TRY(fa2i_tune_find_dead(t->tune, t->problem, &dead));
done:
    return st;
}

static fa2_status race(fa2i_timing *t)
{
    fa2_status st = FA2_OK;
    size_t winner = t->count;
    if (t->count == 0)
        return give_up(t);
    t->tune->found.timed += t->count;
    t->search = (fa2i_search){.sample = sample,
                              .spent = spent,
                              .user = t,
                              .seed = FA2I_TUNE_SEED,
                              .default_index = 0,
                              .exact = t->tune->gpu->modelled};
    FA2_TRY(fa2i_search_run(&t->search, t->contenders, t->count));
    t->tune->found.early += t->search.early;
    FA2_TRY(learn(t));
    if (t->search.stopped)
        return fa2i_timing_put_times(t);
    FA2_TRY(find_winner(t, &winner));
    if (winner < t->count)
        FA2_TRY(fa2i_timing_put_winner(t, winner));
    else if (fa2i_budget_is_stopped(t->tune->budget))
        FA2_TRY(fa2i_timing_put_times(t));
    else
        FA2_TRY(give_up(t));
done:
    return st;
}

static fa2_status time_problem(fa2i_tune *tune, fa2i_tune_problem *problem)
{
    fa2_status st = FA2_OK;
    size_t open = 0;
    fa2i_timing t = {.tune = tune, .problem = problem, .c = fa2i_case_of(&problem->problem, FA2I_TUNE_SEED)};
    FA2_TRY(alloc_timing(&t));
    FA2_TRY(find_whole(&t));
    FA2_TRY(fa2i_tune_judge(tune, problem));
    FA2_TRY(gather(&t, false, &open));
    if (open == 0) /* all candidates are settled, but there is no winner that can be used */
        FA2_TRY(gather(&t, true, &open));
    fa2i_tune_begin_launches(tune);
    st = fa2i_worker_case(tune->worker, &t.c);
    fa2i_worker_expect(tune->worker, problem->model_us);
    if (st == FA2_OK)
        st = race(&t);
    fa2i_tune_end_launches(tune);
    if (st == FA2_E_CUDA || st == FA2_E_MEMORY) /* too large for this machine in its present state */
        st = fail_problem(&t, fa2_last_message());
    if (st == FA2_OK)
        st = fa2i_timing_put_unusable(&t);
done:
    timing_done(&t);
    return st;
}

/* Measures a problem unless another tuner has measured it. If another tuner is about to, it waits for that one, or
 * returns if wait is false. */
static fa2_status measure(fa2i_tune *tune, fa2i_tune_problem *problem, bool wait)
{
    if (!fa2i_tune_claim(tune, "measure", &problem->problem, wait)) {
        tune->beside = true;
        return FA2_OK;
    }
    fa2_status st = fa2i_tune_look_again(tune, problem);
    tune->beside = tune->beside || problem->state == FA2I_PROBLEM_SETTLED;
    if (st == FA2_OK && problem->state == FA2I_PROBLEM_OPEN)
        st = time_problem(tune, problem);
    fa2i_tune_unclaim(tune, "measure", &problem->problem);
    if (st != FA2_OK)
        return st;
    fa2i_progress_step(&tune->progress, fa2i_problem_shape(&problem->problem).text);
    if (problem->state != FA2I_PROBLEM_OPEN)
        fa2i_tune_print_problem(tune, problem);
    return FA2_OK;
}

/* Returns a number proportional to the time that all launches of a problem's variants take. Short launches are repeated
 * more often. */
static double work_of(const fa2i_tune_problem *problem)
{
    double us = 0;
    for (size_t i = 0; i < problem->count; i++)
        if (!problem->predictions[i].hopeless)
            us += fmax(problem->predictions[i].judgement.us, FA2I_SEARCH_SHORT_US);
    return us;
}

/* Returns the next staged problem that is open and was not tried, in their order. If other tuners take part, a problem
 * that is a large part of the remaining work goes first, so that no tuner waits for it at the end. NULL: there is
 * none. */
static fa2i_tune_problem *next_problem(const fa2i_findings *found, bool beside, const bool *tried)
{
    fa2i_tune_problem *first = NULL, *longest = NULL;
    double all = 0, most = 0;
    for (size_t i = 0; i < found->problem_count; i++) {
        fa2i_tune_problem *p = &found->problems[i];
        if (p->state != FA2I_PROBLEM_OPEN || !p->staged || tried[i])
            continue;
        const double work = work_of(p);
        first = first == NULL ? p : first;
        longest = longest == NULL || work > most ? p : longest;
        most = fmax(most, work);
        all += work;
    }
    return beside && most > all / FA2I_TUNE_LARGE ? longest : first;
}

/* Measures all open problems of the stages so far. wait: also waits for problems that other tuners are measuring. */
static fa2_status measure_open(fa2i_tune *tune, bool wait)
{
    fa2_status st = FA2_OK;
    bool *tried = NULL;
    FA2_TRY(FA2I_NEW(tried, tune->found.problem_count));
    for (fa2i_tune_problem *p = next_problem(&tune->found, tune->beside, tried);
         st == FA2_OK && p != NULL && !fa2i_budget_is_spent(tune->budget);
         p = next_problem(&tune->found, tune->beside, tried)) {
        tried[p - tune->found.problems] = true;
        st = measure(tune, p, wait);
    }
done:
    fa2i_free(tried);
    return st;
}

static fa2_status time_open(fa2i_tune *tune, bool wait)
{
    fa2_status st = FA2_OK;
    size_t open = 0;
    for (size_t i = 0; i < tune->found.problem_count; i++)
        open += tune->found.problems[i].state == FA2I_PROBLEM_OPEN && tune->found.problems[i].staged;
    if (open == 0)
        return FA2_OK;
    FA2_TRY(fa2i_tune_worker(tune));
    fa2i_progress_begin(&tune->progress, "timing", open);
    st = measure_open(tune, wait);
    fa2i_progress_end(&tune->progress);
done:
    return st;
}

fa2_status fa2i_tune_time(fa2i_tune *tune)
{
    return time_open(tune, false);
}

fa2_status fa2i_tune_time_rest(fa2i_tune *tune)
{
    return time_open(tune, true);
}
