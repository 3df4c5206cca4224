/*
 * Counters of a context: calls by rule, compilations, misses, and the time that these took (fa2_counters).
 *
 * Any thread may add and read at any time. A call adds one number to a counter, without a lock. Values that are read
 * together need not be of one moment.
 */
#pragma once

#include <stdatomic.h>
#include "fa2.h"

typedef enum fa2i_counter {
#define FA2I_COUNTER(name) FA2I_COUNTER_##name,
#include "runtime/plan/counters.def"
    FA2I_COUNTERS
} fa2i_counter;

/* Zeroed: nothing was counted. */
typedef struct fa2i_counters {
    _Atomic(uint64_t) values[FA2I_COUNTERS];
} fa2i_counters;

/* Names of the counters, such as "calls_exact". */
extern const char *const fa2i_counter_names[FA2I_COUNTERS];

static inline void fa2i_count(fa2i_counters *counters, fa2i_counter counter, uint64_t more)
{
    atomic_fetch_add_explicit(&counters->values[counter], more, memory_order_relaxed);
}

/* Counts a call that was launched by a kernel that this rule chose. */
static inline void fa2i_count_call(fa2i_counters *counters, fa2_rule rule)
{
    fa2i_count(counters, (fa2i_counter)rule, 1);
}

/* Reads all values, in the order of fa2i_counter. */
void fa2i_counters_read(const fa2i_counters *counters, uint64_t ret_values[FA2I_COUNTERS]);
