/*
 * Stores the results of timing a problem. All times of a search, its winner and the candidates that could not take part
 * are one transaction. Each transaction waits for the disk, and other tuners wait for it.
 */
#include <stdio.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "tuner/search/timing.h"

static fa2i_results_of place_of(const fa2i_timing *t)
{
    return (fa2i_results_of){.session = t->tune->session, .device = t->tune->device, .problem = t->problem->id};
}

/* Returns the verdict that was withheld on this problem, in this or an earlier stage, or NULL. */
static const fa2i_verification *withheld(const fa2i_timing *t, const fa2i_tune_kernel *k)
{
    return k->withheld == t->problem->id ? &k->verification : NULL;
}

/* Says whether the contender may only be slow. A later run tries it again. */
static bool is_unsettled(const fa2i_timing *t, size_t i)
{
    return t->failures[i].outcome != FA2I_OUTCOME_OK && t->failures[i].blame == FA2I_BLAME_SLOW;
}

static fa2i_result failure_of(const fa2i_timing *t, size_t i)
{
    const fa2i_tune_kernel *k = &t->tune->found.kernels[t->entries[i].kernel];
    fa2i_result result = {
        .kernel = k->kernel.key,
        .verdict = withheld(t, k),
        .measurement = {.outcome = t->contenders[i].outcome, .settled = true, .max_error = t->entries[i].max_error}};
    memcpy(result.measurement.detail, t->failures[i].detail, sizeof result.measurement.detail);
    return result;
}

fa2_status fa2i_timing_put_failure(fa2i_timing *t, size_t i)
{
    const fa2i_results_of of = place_of(t);
    const fa2i_result result = failure_of(t, i);
    if (t->entries[i].recorded)
        return FA2_OK;
    t->entries[i].recorded = true;
    t->tune->found.failed++;
    fa2i_note(&t->tune->progress, "%s: %s: %s", fa2i_outcome_string(result.measurement.outcome), t->contenders[i].text,
              result.measurement.detail);
    return t->whole || is_unsettled(t, i) ? FA2_OK : fa2i_tune_put_results(t->tune, &of, &result, 1, NULL, NULL);
}

fa2_status fa2i_timing_refute(fa2i_timing *t, size_t i, fa2i_verification *verdict)
{
    fa2i_tune *tune = t->tune;
    fa2i_tune_kernel *k = &tune->found.kernels[t->entries[i].kernel];
    char detail[sizeof verdict->detail];
    snprintf(detail, sizeof detail, "%s: %.120s", fa2i_problem_shape(&t->problem->problem).text, verdict->detail);
    memcpy(verdict->detail, detail, sizeof detail);
    if (verdict->outcome != FA2I_OUTCOME_OK && k->verification.outcome == FA2I_OUTCOME_OK) {
        tune->found.outcomes[k->kernel.outcome]--;
        tune->found.outcomes[verdict->outcome]++;
    }
    k->verification = *verdict;
    k->verified = true;
    k->withheld = t->whole ? t->problem->id : 0;
    return t->whole ? FA2_OK : fa2i_tune_put_verdict(tune, k, verdict);
}

/* ---- all of a search ---- */

/* Rows to be stored, and the records of kernels that were never compiled. */
typedef struct batch {
    fa2i_result *results;
    fa2i_kernel *records; /* one for each kernel that was left out */
    size_t count;
} batch;

static fa2_status alloc_batch(const fa2i_timing *t, batch *b)
{
    *b = (batch){.count = 0};
    const fa2_status st = FA2I_NEW(b->results, t->count + t->left_count + t->unusable_count);
    return st != FA2_OK ? st : FA2I_NEW(b->records, t->left_count + 1);
}

static void batch_done(batch *b)
{
    fa2i_free(b->results);
    fa2i_free(b->records);
}

static void add_times(const fa2i_timing *t, bool settled, batch *b)
{
    for (size_t i = 0; i < t->count; i++) {
        const fa2i_contender *contender = &t->contenders[i];
        if (contender->outcome != FA2I_OUTCOME_OK || contender->statistics.median <= 0)
            continue;
        fa2i_result *result = &b->results[b->count++];
        fa2i_measurement *row = &result->measurement;
        result->kernel = t->tune->found.kernels[t->entries[i].kernel].kernel.key;
        *row = (fa2i_measurement){.outcome = FA2I_OUTCOME_OK,
                                  .settled = settled,
                                  .n = contender->count > 0 ? (int)contender->count : 1,
                                  .min_us = contender->statistics.min,
                                  .q1_us = contender->statistics.q1,
                                  .median_us = contender->statistics.median,
                                  .q3_us = contender->statistics.q3,
                                  .max_error = t->entries[i].max_error};
        snprintf(row->detail, sizeof row->detail, "%s%s",
                 t->search.exact          ? "one launch"
                 : t->search.launches > 1 ? "warm, in batches"
                                          : "cold L2",
                 contender->count == 0 ? ", probe only"
                 : contender->finalist ? ", finalist"
                                       : "");
    }
}

/* Adds the failures that were not stored at once. */
static void add_failures(const fa2i_timing *t, batch *b)
{
    for (size_t i = 0; t->whole && i < t->count; i++)
        if (t->entries[i].recorded && !is_unsettled(t, i))
            b->results[b->count++] = failure_of(t, i);
}

/* Adds what was left out: it is settled without a sample. */
static void add_left_out(const fa2i_timing *t, batch *b)
{
    static const char detail[] = "left out: far behind by what was measured of other problems";
    const fa2i_tune *tune = t->tune;
    for (size_t i = 0; i < t->left_count; i++) {
        const fa2i_tune_kernel *k = &tune->found.kernels[t->left[i]];
        fa2i_result *result = &b->results[b->count++];
        *result = (fa2i_result){.kernel = k->kernel.key, .measurement = {.outcome = FA2I_OUTCOME_OK, .settled = true}};
        memcpy(result->measurement.detail, detail, sizeof detail);
        if (k->known || k->noted)
            continue;
        fa2i_tune_record(tune, k, &b->records[i]);
        result->record = &b->records[i];
    }
}

/* Adds the kernels that cannot run on this problem: not compiled, spilled, or found wrong. */
static void add_unusable(const fa2i_timing *t, batch *b)
{
    for (size_t i = 0; i < t->unusable_count; i++) {
        const fa2i_tune_kernel *k = &t->tune->found.kernels[t->unusable[i]];
        if (k->unsettled)
            continue;
        fa2i_result *result = &b->results[b->count++];
        fa2i_measurement *row = &result->measurement;
        result->kernel = k->kernel.key;
        result->verdict = withheld(t, k);
        *row = (fa2i_measurement){.outcome = k->kernel.outcome, .settled = true};
        if (k->kernel.outcome == FA2I_OUTCOME_SPILLED)
            snprintf(row->detail, sizeof row->detail,
                     k->kernel.spill_bytes > 0 ? "%d bytes per thread"
                                               : "%d bytes, but a stack frame, or serialized wgmma",
                     k->kernel.spill_bytes);
        if (k->verified && k->verification.outcome != FA2I_OUTCOME_OK) {
            row->outcome = k->verification.outcome;
            row->max_error = k->verification.max_error;
            memcpy(row->detail, k->verification.detail, sizeof row->detail);
        }
    }
}

/* Stores the batch together with the unusable kernels. These are then done. */
static fa2_status put_batch(fa2i_timing *t, batch *b, const fa2i_winner *winner, size_t *ret_noted)
{
    const fa2i_results_of of = place_of(t);
    add_unusable(t, b);
    const fa2_status st = fa2i_tune_put_results(t->tune, &of, b->results, b->count, winner, ret_noted);
    if (st == FA2_OK)
        t->unusable_count = 0;
    return st;
}

fa2_status fa2i_timing_put_unusable(fa2i_timing *t)
{
    batch b;
    if (t->unusable_count == 0 || t->whole)
        return FA2_OK;
    fa2_status st = alloc_batch(t, &b);
    if (st == FA2_OK)
        st = put_batch(t, &b, NULL, NULL);
    batch_done(&b);
    return st;
}

fa2_status fa2i_timing_put_times(fa2i_timing *t)
{
    batch b;
    if (t->whole)
        return FA2_OK;
    fa2_status st = alloc_batch(t, &b);
    if (st == FA2_OK) {
        add_times(t, false, &b);
        st = put_batch(t, &b, NULL, NULL);
    }
    batch_done(&b);
    return st;
}

static fa2_status put_all(fa2i_timing *t, const fa2i_winner *winner)
{
    fa2i_tune *tune = t->tune;
    size_t noted = 0;
    batch b;
    fa2_status st = alloc_batch(t, &b);
    if (st == FA2_OK) {
        add_times(t, t->search.complete, &b);
        add_failures(t, &b);
        add_left_out(t, &b);
        st = put_batch(t, &b, winner, &noted);
    }
    batch_done(&b);
    if (st != FA2_OK)
        return st;
    for (size_t i = 0; i < t->problem->count; i++) {
        fa2i_tune_kernel *k = &tune->found.kernels[t->problem->candidates[i]];
        if (withheld(t, k) != NULL)
            k->withheld = 0;
    }
    for (size_t i = 0; i < t->left_count; i++)
        tune->found.kernels[t->left[i]].noted = true;
    tune->found.spared += t->left_count;
    tune->found.uncompiled += noted;
    return FA2_OK;
}

fa2_status fa2i_timing_put_winner(fa2i_timing *t, size_t winner_index)
{
    fa2_status st = FA2_OK;
    fa2i_tune *tune = t->tune;
    fa2i_tune_problem *p = t->problem;
    const fa2i_kernel *kernel = &tune->found.kernels[t->entries[winner_index].kernel].kernel;
    fa2i_winner winner = {
        .kernel = kernel->key,
        .measured = !tune->gpu->modelled,
        .median_us = t->contenders[winner_index].statistics.median,
    };
    if (t->contenders[0].outcome == FA2I_OUTCOME_OK)
        winner.default_us = t->contenders[0].statistics.median;
    if (tune->gpu->modelled) /* the device's counters know more than the cost model */
        winner.model_us = winner.median_us;
    else
        FA2_TRY(fa2i_generator_cost(tune->generator, kernel->variant.text, &p->problem, &tune->gpu->card,
                                    kernel->registers, &winner.model_us));
    FA2_TRY(put_all(t, &winner));
    p->winner = winner;
    p->state = FA2I_PROBLEM_MEASURED;
    p->complete = t->search.complete;
    memcpy(p->variant, kernel->variant.text, sizeof p->variant);
done:
    return st;
}
