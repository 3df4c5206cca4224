/*
 * Storing while fa2-tune forget runs. It may drop kernels that are being tuned. When the database turns out to lack
 * one, all dropped kernels are stored again, with code and verdicts, because results refer to them.
 */
#include <stdio.h>
#include <string.h>
#include "tuner/search/tune.h"

enum { TRIES = 4 }; /* another forget may undo each try */

void fa2i_tune_record(const fa2i_tune *tune, const fa2i_tune_kernel *k, fa2i_kernel *ret_record)
{
    *ret_record = k->kernel;
    if (k->kernel.generator[0] != '\0') /* it was compiled, or found in the database */
        return;
    ret_record->nvrtc = tune->target.nvrtc;
    memcpy(ret_record->target, tune->target.name, sizeof ret_record->target);
    snprintf(ret_record->generator, sizeof ret_record->generator, "%s", fa2i_generator_id(tune->generator));
}

/* *ret_is: a kernel was in the database and is no longer there. */
static fa2_status is_forgotten(fa2i_cache *cache, const fa2i_tune_kernel *k, bool *ret_is)
{
    fa2i_kernel found = {0};
    *ret_is = false;
    if (!k->known && !k->noted)
        return FA2_OK;
    const fa2_status st = fa2i_cache_get_kernel(cache, &k->kernel.key, k->kernel.variant.recipe.abi, false, &found);
    fa2i_kernel_done(&found);
    *ret_is = st == FA2_E_NOT_FOUND;
    return *ret_is ? FA2_OK : st;
}

static fa2_status store_again(fa2i_tune *tune, const fa2i_tune_kernel *k)
{
    fa2i_kernel record;
    fa2i_tune_record(tune, k, &record);
    fa2i_note(&tune->progress, "forgotten meanwhile, and stored again: %s", record.variant.text);
    const fa2_status st = fa2i_cache_put_kernel(tune->cache, &record);
    if (st != FA2_OK || !k->verified || k->refuted || k->withheld != 0)
        return st;
    return fa2i_cache_put_verification(tune->cache, tune->device, &k->kernel.key, &k->verification);
}

static fa2_status store_forgotten(fa2i_tune *tune)
{
    fa2_status st = FA2_OK;
    for (size_t i = 0; st == FA2_OK && i < tune->found.kernel_count; i++) {
        bool forgotten = false;
        st = is_forgotten(tune->cache, &tune->found.kernels[i], &forgotten);
        if (st == FA2_OK && forgotten)
            st = store_again(tune, &tune->found.kernels[i]);
    }
    return st == FA2_E_NOT_FOUND ? FA2_OK : st; /* forgotten once more: the next try finds it */
}

fa2_status fa2i_tune_put_verdict(fa2i_tune *tune, const fa2i_tune_kernel *k, const fa2i_verification *verdict)
{
    fa2_status st = FA2_E_NOT_FOUND;
    for (int i = 0; st == FA2_E_NOT_FOUND && i < TRIES; i++) {
        st = i == 0 ? FA2_OK : store_forgotten(tune);
        if (st == FA2_OK)
            st = fa2i_cache_put_verification(tune->cache, tune->device, &k->kernel.key, verdict);
    }
    return st;
}

fa2_status fa2i_tune_put_results(fa2i_tune *tune, const fa2i_results_of *of, const fa2i_result *results, size_t count,
                                 const fa2i_winner *winner, size_t *ret_noted)
{
    fa2_status st = FA2_E_NOT_FOUND;
    for (int i = 0; st == FA2_E_NOT_FOUND && i < TRIES; i++) {
        st = i == 0 ? FA2_OK : store_forgotten(tune);
        if (st == FA2_OK)
            st = fa2i_cache_put_results(tune->cache, of, results, count, winner, ret_noted);
    }
    return st;
}
