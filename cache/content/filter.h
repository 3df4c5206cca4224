/*
 * A filter selects a part of a database, for list, show and forget. This file also declares the functions that forget.
 */
#pragma once

#include "cache/cache.h"
#include "runtime/base/text.h"

/* All conditions must hold. A zeroed filter, or NULL, selects everything. Texts are borrowed. */
typedef struct fa2i_filter {
    const char *device;  /* part of the device's name; upper and lower case are equal */
    const char *variant; /* part of the variant's text */
    bool failures;       /* select failures only (forget alone) */
    bool given[FA2I_FIELD_COUNT];
    fa2_problem problem; /* the values of the given fields */
} fa2i_filter;

/* Says whether a filter has a condition on the problem. */
bool fa2i_filter_names_problem(const fa2i_filter *filter);

/* Append " AND ..." to a statement. The arguments name its columns: `device` is the device's name, `variant` the
 * variant, and `fields` the prefix of a problem's fields ("p."). */
void fa2i_filter_where(const fa2i_filter *filter, const char *device, const char *variant, const char *fields,
                       fa2i_text *sql);

/* Get the problems of the views `measurements` and `winners` that the filter selects. *ret_problems belongs to the
 * caller (fa2i_free). */
fa2_status fa2i_cache_known_problems(fa2i_cache *cache, const fa2i_filter *filter, fa2_problem **ret_problems,
                                     size_t *ret_count);

typedef struct fa2i_forgotten {
    size_t measurements, winners, verifications, kernels;
} fa2i_forgotten;

/* Drop the selected measurements and the winners that rest on them, in one transaction.
 * - With a device alone: drop all results of the device, including its verifications.
 * - With a variant or failures: drop also verifications and compiled kernels of these variants, or with these outcomes.
 * The next tuning measures a problem again as a whole if it loses its winner here. */
fa2_status fa2i_cache_forget(fa2i_cache *cache, const fa2i_filter *filter, fa2i_forgotten *ret_forgotten);

/* Count what fa2i_cache_forget would drop. Writes nothing. */
fa2_status fa2i_cache_would_forget(fa2i_cache *cache, const fa2i_filter *filter, fa2i_forgotten *ret_forgotten);
