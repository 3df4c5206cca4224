/*
 * Kernels that another card found wrong. The runtime uses them on no card (fa2i_cache_refutation). So a tuning does not
 * compile, verify or time them, and they win nothing. After fa2-tune forget --failures they are tried again.
 */
#include <stdio.h>
#include <string.h>
#include "tuner/search/tune.h"

static const fa2i_refutation *find(const fa2i_tune *tune, const fa2i_key *key)
{
    for (size_t i = 0; i < tune->refutation_count; i++)
        if (memcmp(&tune->refutations[i].kernel, key, sizeof *key) == 0)
            return &tune->refutations[i];
    return NULL;
}

bool fa2i_tune_is_refuted(const fa2i_tune *tune, const fa2i_key *key)
{
    return find(tune, key) != NULL;
}

fa2_status fa2i_tune_find_refuted(fa2i_tune *tune)
{
    const fa2_status st = fa2i_cache_refutations(tune->cache, tune->device, &tune->refutations,
                                                 &tune->refutation_count);
    for (size_t i = 0; st == FA2_OK && i < tune->kernel_count; i++) {
        fa2i_tune_kernel *k = &tune->kernels[i];
        const fa2i_refutation *by = find(tune, &k->kernel.key);
        k->refuted = by != NULL;
        if (by == NULL)
            continue;
        k->verification = (fa2i_verification){.outcome = by->outcome};
        snprintf(k->verification.detail, sizeof k->verification.detail,
                 "on another card, %.60s: %.400s", by->device, by->detail);
    }
    return st;
}
