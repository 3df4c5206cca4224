/*
 * Timing: per open problem a search among the kernels that can run, a check of the finalists on the
 * problem itself, then measurements and winner into the database.
 *
 * What is settled when (so that a run that is killed anywhere can be continued):
 * - a failure of the kernel: at once; what may be the machine's fault is stored nowhere, and the
 *   problem fails for this run;
 * - a loser: when the search is complete;
 * - the winner's own measurement: after the winner. A problem whose candidates are all settled
 *   therefore has a winner.
 *
 * A continued search leaves out what is settled, except the default and the winner so far, which
 * are always raced again: times of different sessions are not compared.
 */
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/search/tune.h"

/* One contender more than the search knows of it. */
typedef struct entry {
    size_t kernel;
    bool recorded; /* its failure is in the database */
    bool checked;  /* right on the problem's own tensors */
    double max_error;
} entry;

typedef struct timing {
    fa2i_tune *tune;
    fa2i_tune_problem *problem;
    fa2i_contender *contenders;
    entry *entries;         /* per contender */
    uint32_t *ids;          /* per contender: its kernel */
    fa2i_failure *failures; /* per contender */
    size_t count;
    size_t *left; /* kernels that are left out as hopeless */
    size_t left_count;
    fa2i_case c;
    fa2i_expected expected;
    void *output;
    fa2i_search search;
} timing;

fa2i_case fa2i_tune_case(const fa2_problem *problem)
{
    return fa2i_case_of(problem, FA2I_TUNE_SEED);
}

/* ---- rows ---- */

static fa2_status put_row(const timing *t, size_t kernel, const fa2i_measurement *row)
{
    const fa2i_tune *tune = t->tune;
    return fa2i_cache_put_measurement(tune->cache, tune->session, tune->device, t->problem->id,
                                      &tune->kernels[kernel].kernel.key, row);
}

/* Record kernels that cannot run at all on this problem: not compiled, spilled, or found wrong. */
static fa2_status put_unusable(const timing *t, size_t kernel)
{
    const fa2i_tune_kernel *k = &t->tune->kernels[kernel];
    fa2i_measurement row = {.outcome = k->kernel.outcome, .settled = true};
    if (k->kernel.outcome == FA2I_OUTCOME_SPILLED)
        snprintf(row.detail, sizeof row.detail,
                 k->kernel.spill_bytes > 0 ? "%d bytes per thread"
                                           : "%d bytes, but a stack frame, or serialized wgmma",
                 k->kernel.spill_bytes);
    if (k->verified && k->verification.outcome != FA2I_OUTCOME_OK) {
        row.outcome = k->verification.outcome;
        row.max_error = k->verification.max_error;
        memcpy(row.detail, k->verification.detail, sizeof row.detail);
    }
    return put_row(t, kernel, &row);
}

static fa2_status put_time(const timing *t, size_t i, bool settled)
{
    const fa2i_contender *contender = &t->contenders[i];
    fa2i_measurement row = {.outcome = FA2I_OUTCOME_OK,
                            .settled = settled,
                            .n = contender->count > 0 ? (int)contender->count : 1,
                            .min_us = contender->statistics.min,
                            .q1_us = contender->statistics.q1,
                            .median_us = contender->statistics.median,
                            .q3_us = contender->statistics.q3,
                            .max_error = t->entries[i].max_error};
    snprintf(row.detail, sizeof row.detail, "%s%s",
             t->search.exact          ? "one launch"
             : t->search.launches > 1 ? "warm, in batches"
                                      : "cold L2",
             contender->count == 0 ? ", probe only"
             : contender->finalist ? ", finalist"
                                   : "");
    return put_row(t, t->entries[i].kernel, &row);
}

/* Record, once, that a contender failed on this problem. */
static fa2_status put_failure(timing *t, size_t i)
{
    fa2i_measurement row = {
        .outcome = t->contenders[i].outcome, .settled = true, .max_error = t->entries[i].max_error};
    memcpy(row.detail, t->failures[i].detail, sizeof row.detail);
    if (t->entries[i].recorded)
        return FA2_OK;
    t->entries[i].recorded = true;
    t->tune->failed++;
    fa2i_note(&t->tune->progress, "%s: %s: %s", fa2i_outcome_string(row.outcome),
              t->contenders[i].text, row.detail);
    return put_row(t, t->entries[i].kernel, &row);
}

/* ---- who takes part ---- */

static void add_contender(timing *t, size_t kernel)
{
    const fa2i_kernel *k = &t->tune->kernels[kernel].kernel;
    t->contenders[t->count] =
        (fa2i_contender){.text = k->variant.text,
                         .smem_bytes = fa2i_recipe_main(&k->variant.recipe)->smem_bytes,
                         .registers = k->registers};
    t->entries[t->count] = (entry){.kernel = kernel};
    t->ids[t->count++] = (uint32_t)kernel;
}

/* Is a candidate not worth a measurement? One that was not worth compiling could not be measured, either. */
static bool is_left_out(const timing *t, size_t candidate)
{
    const fa2i_tune_kernel *k = &t->tune->kernels[t->problem->candidates[candidate]];
    return !k->known || t->problem->prospects[candidate].hopeless;
}

/* Fill the contenders: usable candidates that are not settled, behind the default, and not left out. again: also
 * those that are settled with a time. *ret_open: how many are not settled. */
static fa2_status gather(timing *t, bool again, size_t *ret_open)
{
    bool has_default = false;
    t->count = t->left_count = *ret_open = 0;
    for (size_t i = 0; i < t->problem->count; i++) {
        size_t kernel = t->problem->candidates[i];
        fa2i_measurement row = {0};
        fa2_status st = fa2i_cache_get_measurement(t->tune->cache, t->tune->device, t->problem->id,
                                                   &t->tune->kernels[kernel].kernel.key, &row);
        bool settled = st == FA2_OK && row.settled;
        if (st != FA2_OK && st != FA2_E_NOT_FOUND)
            return st;
        if (!settled && is_left_out(t, i) && (has_default || !t->tune->kernels[kernel].known)) {
            t->left[t->left_count++] = kernel;
            continue;
        }
        if (!fa2i_tune_usable(t->tune, t->problem, kernel)) {
            st = settled ? FA2_OK : put_unusable(t, kernel);
            if (st != FA2_OK)
                return st;
            continue;
        }
        if (settled && row.outcome != FA2I_OUTCOME_OK)
            continue;
        *ret_open += !settled;
        /* The first that can run is the default: candidates come in the order of the cost model. */
        if (!settled || again || !has_default || fa2i_tune_is_winner(t->tune, t->problem, kernel))
            add_contender(t, kernel);
        has_default = true;
    }
    return FA2_OK;
}

/* Teach what was measured; one time alone says nothing about others. */
static fa2_status learn(const timing *t)
{
    fa2_status st = FA2_OK;
    size_t count = 0;
    size_t *kernels = fa2i_alloc_array(t->count, sizeof *kernels);
    double *us = fa2i_alloc_array(t->count, sizeof *us);
    if (kernels == NULL || us == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for %zu measurements", t->count));
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

static fa2_status alloc_timing(timing *t)
{
    size_t count = t->problem->count;
    t->contenders = fa2i_alloc_array(count, sizeof *t->contenders);
    t->entries = fa2i_alloc_array(count, sizeof *t->entries);
    t->ids = fa2i_alloc_array(count, sizeof *t->ids);
    t->failures = fa2i_alloc_array(count, sizeof *t->failures);
    t->left = fa2i_alloc_array(count, sizeof *t->left);
    if (t->contenders == NULL || t->entries == NULL || t->ids == NULL || t->failures == NULL ||
        t->left == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for %zu candidates", count);
    return FA2_OK;
}

static void timing_done(timing *t)
{
    fa2i_free(t->contenders);
    fa2i_free(t->entries);
    fa2i_free(t->ids);
    fa2i_free(t->failures);
    fa2i_free(t->left);
    fa2i_free(t->output);
    fa2i_expected_done(&t->expected);
}

/* ---- search and check ---- */

static fa2_status sample(void *user, fa2i_sample *samples, size_t count, int launches,
                         double best_us)
{
    timing *t = user;
    fa2_status st =
        fa2i_worker_sample(t->tune->worker, samples, count, t->ids, launches, best_us, t->failures);
    for (size_t i = 0; i < t->count && st == FA2_OK; i++) {
        if (t->failures[i].outcome == FA2I_OUTCOME_OK)
            continue;
        t->contenders[i].outcome = t->failures[i].outcome;
        st = put_failure(t, i);
    }
    return st;
}

static bool spent(void *user)
{
    const timing *t = user;
    return fa2i_tune_spent(t->tune);
}

/* The verdict on a contender's kernel. */
static fa2_status put_verdict(timing *t, size_t i, const fa2i_verification *verdict)
{
    fa2i_tune *tune = t->tune;
    fa2i_tune_kernel *k = &tune->kernels[t->entries[i].kernel];
    if (verdict->outcome != FA2I_OUTCOME_OK && k->verification.outcome == FA2I_OUTCOME_OK) {
        tune->outcomes[k->kernel.outcome]--;
        tune->outcomes[verdict->outcome]++;
    }
    k->verification = *verdict;
    k->verified = true;
    return fa2i_cache_put_verification(tune->cache, tune->device, &k->kernel.key, verdict);
}

/* Right in all cases of the verification, and wrong on a problem: it may win nowhere. */
static fa2_status refute(timing *t, size_t i, fa2i_verification *verdict)
{
    char shape[FA2I_PROBLEM_CHARS];
    char detail[sizeof verdict->detail];
    fa2i_problem_format(&t->problem->problem, shape, sizeof shape);
    snprintf(detail, sizeof detail, "%s: %.120s", shape, verdict->detail);
    memcpy(verdict->detail, detail, sizeof detail);
    return put_verdict(t, i, verdict);
}

/* Is a contender right on sampled rows of the problem itself? Otherwise it is out. */
static fa2_status check_contender(timing *t, size_t i)
{
    fa2i_verification verdict = {0};
    uint32_t overwritten = 0;
    fa2_status st =
        fa2i_worker_check(t->tune->worker, t->ids[i], t->expected.places, t->expected.place_count,
                          t->output, t->expected.output_bytes, &overwritten, &t->failures[i]);
    if (st != FA2_OK || fa2i_tune_stopped(t->tune)) /* find_winner asks, too */
        return st;
    if (t->failures[i].outcome != FA2I_OUTCOME_OK && t->failures[i].blame == FA2I_BLAME_IMAGE)
        return fa2i_worker_misfit(t->failures[i].detail);
    if (t->failures[i].outcome == FA2I_OUTCOME_OK) {
        fa2i_expected_judge(&t->expected, "this problem", t->output, overwritten, &verdict);
        t->entries[i].max_error = verdict.max_error;
        t->failures[i].outcome = verdict.outcome;
        memcpy(t->failures[i].detail, verdict.detail, sizeof verdict.detail);
        if (verdict.outcome != FA2I_OUTCOME_OK)
            st = refute(t, i, &verdict);
        if (st != FA2_OK)
            return st;
    }
    t->entries[i].checked = t->failures[i].outcome == FA2I_OUTCOME_OK;
    t->contenders[i].outcome = t->failures[i].outcome;
    return t->entries[i].checked ? FA2_OK : put_failure(t, i);
}

/* Check all finalists; *ret_winner is the best contender that is right, t->count if none is, or if
 * the user stops. */
static fa2_status find_winner(timing *t, size_t *ret_winner)
{
    fa2_status st = FA2_OK;
    size_t winner = t->count;

    FA2_TRY(fa2i_expected_sampled(&t->c, FA2I_TUNE_SEED + 1, t->tune->threads, &t->expected));
    t->output = fa2i_alloc(t->expected.output_bytes);
    if (t->output == NULL)
        FA2_TRY(fa2i_fail(FA2_E_MEMORY, "no memory for sampled rows"));
    for (size_t i = 0; i < t->count && !fa2i_tune_stopped(t->tune); i++)
        if (t->contenders[i].finalist && t->contenders[i].outcome == FA2I_OUTCOME_OK)
            FA2_TRY(check_contender(t, i));
    winner = fa2i_search_pick(t->contenders, t->count, 0);
    while (winner < t->count && !t->entries[winner].checked && !fa2i_tune_stopped(t->tune)) {
        FA2_TRY(check_contender(t, winner));
        winner = fa2i_search_pick(t->contenders, t->count, 0);
    }
    *ret_winner = winner < t->count && t->entries[winner].checked ? winner : t->count;
done:
    return st;
}

/* ---- results ---- */

static fa2_status put_losers(timing *t, size_t winner, bool settled)
{
    for (size_t i = 0; i < t->count; i++) {
        const fa2i_contender *contender = &t->contenders[i];
        if (i == winner || contender->outcome != FA2I_OUTCOME_OK ||
            contender->statistics.median <= 0)
            continue;
        const fa2_status st = put_time(t, i, settled);
        if (st != FA2_OK)
            return st;
    }
    return FA2_OK;
}

/* Settled without a sample. */
static fa2_status put_left_out(const timing *t)
{
    static const char detail[] = "left out: far behind by what was measured of other problems";
    fa2i_tune *tune = t->tune;
    fa2i_measurement row = {.outcome = FA2I_OUTCOME_OK, .settled = true};
    fa2_status st = FA2_OK;
    memcpy(row.detail, detail, sizeof detail);
    for (size_t i = 0; i < t->left_count && st == FA2_OK; i++) {
        fa2i_tune_kernel *k = &tune->kernels[t->left[i]];
        if (!k->known && !k->noted) {
            bool new = false;
            fa2i_kernel kernel = k->kernel;
            kernel.nvrtc = tune->nvrtc;
            memcpy(kernel.target, tune->target.name, sizeof kernel.target);
            snprintf(kernel.generator, sizeof kernel.generator, "%s",
                     fa2i_generator_id(tune->generator));
            st = fa2i_cache_note_kernel(tune->cache, &kernel, &new);
            k->noted = true;
            tune->uncompiled += new;
        }
        if (st == FA2_OK)
            st = put_row(t, t->left[i], &row);
        tune->spared++;
    }
    return st;
}

static fa2_status put_winner(timing *t, size_t i)
{
    fa2_status st = FA2_OK;
    fa2i_tune *tune = t->tune;
    fa2i_tune_problem *p = t->problem;
    const fa2i_kernel *kernel = &tune->kernels[t->entries[i].kernel].kernel;
    fa2i_winner winner = {
        .kernel = kernel->key,
        .measured = !tune->modelled,
        .median_us = t->contenders[i].statistics.median,
    };
    if (t->contenders[0].outcome == FA2I_OUTCOME_OK)
        winner.default_us = t->contenders[0].statistics.median;
    if (tune->modelled) /* by the device's counters, which know more than the cost model */
        winner.model_us = winner.median_us;
    else
        FA2_TRY(fa2i_generator_cost(tune->generator, kernel->variant.text, &p->problem, &tune->card,
                                    kernel->registers, &winner.model_us));
    FA2_TRY(put_losers(t, i, t->search.complete));
    FA2_TRY(put_left_out(t));
    FA2_TRY(fa2i_cache_put_winner(tune->cache, tune->session, tune->device, p->id, &winner));
    FA2_TRY(put_time(t, i, t->search.complete));
    p->winner = winner;
    p->state = FA2I_PROBLEM_MEASURED;
    p->complete = t->search.complete;
    memcpy(p->variant, kernel->variant.text, sizeof p->variant);
done:
    return st;
}

static fa2_status fail_problem(timing *t, const char *why)
{
    t->problem->state = FA2I_PROBLEM_FAILED;
    snprintf(t->problem->message, sizeof t->problem->message, "%s", why);
    return FA2_OK;
}

/* Nothing can run; but what was left out may. */
static fa2_status give_up(timing *t, const char *why)
{
    if (t->left_count == 0 || t->problem->all_wanted)
        return fail_problem(t, why);
    t->problem->all_wanted = true;
    t->problem->staged = false;
    return FA2_OK;
}

static fa2_status race(timing *t)
{
    fa2_status st = FA2_OK;
    size_t winner = t->count;

    if (t->count == 0)
        return give_up(t, "no variant of this problem can run: see `fa2-tune show`");
    t->tune->timed += t->count;
    t->search = (fa2i_search){.sample = sample,
                              .spent = spent,
                              .user = t,
                              .seed = FA2I_TUNE_SEED,
                              .default_index = 0,
                              .exact = t->tune->modelled};
    FA2_TRY(fa2i_search_run(&t->search, t->contenders, t->count));
    t->tune->early += t->search.early;
    FA2_TRY(learn(t));
    if (t->search.stopped)
        return put_losers(t, t->count, false);
    FA2_TRY(find_winner(t, &winner));
    if (winner < t->count)
        FA2_TRY(put_winner(t, winner));
    else if (fa2i_tune_stopped(t->tune))
        FA2_TRY(put_losers(t, t->count, false));
    else
        FA2_TRY(give_up(t, "every variant failed while it was timed: see `fa2-tune show`"));
done:
    return st;
}

static fa2_status time_problem(fa2i_tune *tune, fa2i_tune_problem *problem)
{
    fa2_status st = FA2_OK;
    size_t open = 0;
    timing t = {.tune = tune, .problem = problem, .c = fa2i_tune_case(&problem->problem)};

    FA2_TRY(alloc_timing(&t));
    FA2_TRY(fa2i_tune_judge(tune, problem));
    FA2_TRY(gather(&t, false, &open));
    if (open == 0) /* all settled, and yet no winner that could be used */
        FA2_TRY(gather(&t, true, &open));
    fa2i_tune_begin_launches(tune);
    st = fa2i_worker_case(tune->worker, &t.c);
    if (st == FA2_OK)
        st = race(&t);
    fa2i_tune_end_launches(tune);
    if (st == FA2_E_CUDA || st == FA2_E_MEMORY) /* too large for this machine, as it is now */
        st = fail_problem(&t, fa2_last_message());
done:
    timing_done(&t);
    return st;
}

/* Measure a problem, unless another tuner has done so; *ret_others: it is about to, and wait was
 * not asked for. */
static fa2_status measure(fa2i_tune *tune, fa2i_tune_problem *problem, bool wait, bool *ret_others)
{
    char shape[FA2I_PROBLEM_CHARS];
    *ret_others = !fa2i_tune_claim(tune, "measure", &problem->problem, wait);
    if (*ret_others)
        return FA2_OK;
    fa2_status st = fa2i_tune_look_again(tune, problem);
    if (st == FA2_OK && problem->state == FA2I_PROBLEM_OPEN)
        st = time_problem(tune, problem);
    fa2i_tune_unclaim(tune, "measure", &problem->problem);
    if (st != FA2_OK)
        return st;
    fa2i_problem_format(&problem->problem, shape, sizeof shape);
    fa2i_progress_step(&tune->progress, shape);
    if (problem->state != FA2I_PROBLEM_OPEN)
        fa2i_tune_print_problem(tune, problem);
    return FA2_OK;
}

/* All open problems of the stages so far; wait: those that others have. */
static fa2_status measure_open(fa2i_tune *tune, bool wait)
{
    for (size_t i = 0; i < tune->problem_count && !fa2i_tune_spent(tune); i++) {
        bool others = false;
        if (tune->problems[i].state != FA2I_PROBLEM_OPEN || !tune->problems[i].staged)
            continue;
        const fa2_status st = measure(tune, &tune->problems[i], wait, &others);
        if (st != FA2_OK)
            return st;
    }
    return FA2_OK;
}

static fa2_status time_open(fa2i_tune *tune, bool wait)
{
    fa2_status st = FA2_OK;
    size_t open = 0;
    for (size_t i = 0; i < tune->problem_count; i++)
        open += tune->problems[i].state == FA2I_PROBLEM_OPEN && tune->problems[i].staged;
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
