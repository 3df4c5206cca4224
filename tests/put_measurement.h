/*
 * Stores a single measurement, for tests. The tuner stores a whole search at once.
 */
#pragma once

#include "cache/cache.h"

static inline fa2_status put_measurement(fa2i_cache *cache, int64_t session, int64_t device, int64_t problem,
                                         const fa2i_key *kernel, const fa2i_measurement *measurement)
{
    const fa2i_results_of of = {.session = session, .device = device, .problem = problem};
    const fa2i_result result = {.kernel = *kernel, .measurement = *measurement};
    return fa2i_cache_put_results(cache, &of, &result, 1, NULL, NULL);
}
