/*
 * Part of a database: what list and show show, and forget forgets. And the forgetting.
 */
#ifndef FA2I_CACHE_FILTER_H
#define FA2I_CACHE_FILTER_H

#include "cache/cache.h"
#include "runtime/base/text.h"

/* All of it must hold. Zeroed, or NULL, is everything. Texts are borrowed. */
typedef struct fa2i_filter {
    const char *device;  /* is in the device's name, in any case */
    const char *variant; /* is in the variant's text */
    bool failures;       /* no outcome but failures (forget alone) */
    bool given[FA2I_FIELD_COUNT];
    fa2_problem problem; /* the fields that are given */
} fa2i_filter;

/* Append " AND ..." for a statement in which the device's name, the variant and the problem's
 * fields are these columns ("device", "variant", "p." in front of a field's name). */
void fa2i_filter_where(const fa2i_filter *filter, const char *device, const char *variant,
                       const char *fields, fa2i_text *sql);

/* The problems of the view `measurements` that pass. *ret_problems belongs to the caller
 * (fa2i_free). */
fa2_status fa2i_cache_measured_problems(fa2i_cache *cache, const fa2i_filter *filter,
                                        fa2_problem **ret_problems, size_t *ret_count);

typedef struct fa2i_forgotten {
    size_t measurements, winners, verifications, kernels;
} fa2i_forgotten;

/* Drop the measurements that pass, and the winners that rest on them; with a device alone, all
 * that was found out on it, its verifications too; with a variant or failures, also verifications
 * and compiled kernels of those variants, or with those outcomes. A problem that loses its winner
 * is measured again as a whole by the next tuning. One transaction. */
fa2_status fa2i_cache_forget(fa2i_cache *cache, const fa2i_filter *filter,
                             fa2i_forgotten *ret_forgotten);

/* What that would drop; nothing is written. */
fa2_status fa2i_cache_would_forget(fa2i_cache *cache, const fa2i_filter *filter,
                                   fa2i_forgotten *ret_forgotten);

#endif
