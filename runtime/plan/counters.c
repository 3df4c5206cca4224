#include "runtime/plan/counters.h"

#include <stddef.h>

const char *const fa2i_counter_names[FA2I_COUNTERS] = {
#define FA2I_COUNTER(name) #name,
#include "runtime/plan/counters.def"
};

#define FA2I_COUNTER(name)                                                                                             \
    _Static_assert(offsetof(fa2_counters, name) == sizeof(size_t) + FA2I_COUNTER_##name * sizeof(uint64_t),            \
                   "counters.def has the members of fa2_counters in their order");
#include "runtime/plan/counters.def"
_Static_assert(FA2I_COUNTER_calls_exact == (int)FA2_RULE_EXACT && FA2I_COUNTER_calls_nearest == (int)FA2_RULE_NEAREST &&
                   FA2I_COUNTER_calls_arch == (int)FA2_RULE_ARCH &&
                   FA2I_COUNTER_calls_default == (int)FA2_RULE_DEFAULT &&
                   FA2I_COUNTER_calls_shipped == (int)FA2_RULE_SHIPPED,
               "a rule is the number of its counter");

void fa2i_counters_read(const fa2i_counters *counters, uint64_t ret_values[FA2I_COUNTERS])
{
    for (int i = 0; i < FA2I_COUNTERS; i++)
        ret_values[i] = atomic_load_explicit(&counters->values[i], memory_order_relaxed);
}
