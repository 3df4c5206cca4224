/*
 * Kernels that another card found wrong. The runtime uses them on no card (fa2i_cache_refutation). So a tuning does not
 * compile, verify or time them, and they win nothing. After fa2-tune forget --failures they are tried again.
 */
#include <stdio.h>
#include <string.h>
#include "tuner/search/tune.h"

fa2_status fa2i_tune_find_refuted(fa2i_tune *tune)
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
