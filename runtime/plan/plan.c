/*
 * An open-addressing table of pointers, linear probing, at most half full.
 *
 * What makes the look-up right without a lock:
 * - A slot goes from NULL to a plan once and never changes again; a plan never changes after it
 *   is in a slot. The slot is stored with release and loaded with acquire, so whoever sees the
 *   pointer sees the plan.
 * - Growing fills a new table completely and then stores it with release. A reader that still
 *   walks the old one finds every plan that was there; one that was added since it misses, and
 *   then looks again under the caller's lock before it prepares anything.
 * - Old tables stay until fa2i_plans_done, so no reader ever walks freed memory. Sizes double, so
 *   all old tables together are smaller than the current one.
 * - At least half of the slots are NULL, so that a probe ends.
 */
#include "runtime/plan/plan.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include "runtime/base/alloc.h"
#include "runtime/base/problem_hash.h"

enum { FIRST_SLOTS = 64 }; /* a power of two, as are all sizes */

typedef _Atomic(fa2i_plan *) plan_slot;

struct fa2i_plan_table {
    fa2i_plan_table *older; /* the table that this one replaced */
    size_t count;           /* plans in it; for the writer only */
    size_t mask;            /* slots - 1 */
    plan_slot slots[];
};

static fa2i_plan_table *table_create(size_t slots)
{
    fa2i_plan_table *table = fa2i_alloc(sizeof(*table) + slots * sizeof(plan_slot));
    if (table == NULL)
        return NULL;
    table->mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        atomic_init(&table->slots[i], NULL);
    return table;
}

static void table_insert(fa2i_plan_table *table, fa2i_plan *plan)
{
    size_t i = fa2i_problem_hash(&plan->problem) & table->mask;
    while (atomic_load_explicit(&table->slots[i], memory_order_relaxed) != NULL)
        i = (i + 1) & table->mask;
    atomic_store_explicit(&table->slots[i], plan, memory_order_release);
    table->count++;
}

/* No plan is an object that is const: those here, and the caller's that is not kept. */
void fa2i_plan_count(const fa2i_plan *plan, uint64_t calls)
{
    atomic_fetch_add_explicit(&((fa2i_plan *)plan)->calls, calls, memory_order_relaxed);
}

uint64_t fa2i_plan_take_calls(const fa2i_plan *plan)
{
    return atomic_exchange_explicit(&((fa2i_plan *)plan)->calls, 0, memory_order_relaxed);
}

fa2_status fa2i_plans_init(fa2i_plans *plans)
{
    fa2i_plan_table *table = table_create(FIRST_SLOTS);
    if (table == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for the plan table");
    atomic_init(&plans->table, table);
    return FA2_OK;
}

void fa2i_plans_done(fa2i_plans *plans)
{
    fa2i_plan_table *table = atomic_load_explicit(&plans->table, memory_order_acquire);

    for (size_t i = 0; table != NULL && i <= table->mask; i++)
        fa2i_free(atomic_load_explicit(&table->slots[i], memory_order_relaxed));
    while (table != NULL) {
        fa2i_plan_table *older = table->older;
        fa2i_free(table);
        table = older;
    }
    atomic_init(&plans->table, NULL);
}

const fa2i_plan *fa2i_plans_find(fa2i_plans *plans, const fa2_problem *problem)
{
    fa2i_plan_table *table = atomic_load_explicit(&plans->table, memory_order_acquire);

    for (size_t i = fa2i_problem_hash(problem) & table->mask;; i = (i + 1) & table->mask) {
        fa2i_plan *plan = atomic_load_explicit(&table->slots[i], memory_order_acquire);
        if (plan == NULL || memcmp(&plan->problem, problem, sizeof(*problem)) == 0)
            return plan;
    }
}

void fa2i_plans_each(const fa2i_plans *plans, void (*each)(void *user, const fa2i_plan *plan),
                     void *user)
{
    fa2i_plan_table *table = atomic_load_explicit(&plans->table, memory_order_acquire);
    for (size_t i = 0; i <= table->mask; i++) {
        const fa2i_plan *plan = atomic_load_explicit(&table->slots[i], memory_order_acquire);
        if (plan != NULL)
            each(user, plan);
    }
}

static fa2_status grow(fa2i_plans *plans, fa2i_plan_table *old)
{
    size_t slots = 2 * (old->mask + 1);
    fa2i_plan_table *table = table_create(slots);
    if (table == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a plan table of %zu slots", slots);
    for (size_t i = 0; i <= old->mask; i++) {
        fa2i_plan *plan = atomic_load_explicit(&old->slots[i], memory_order_relaxed);
        if (plan != NULL)
            table_insert(table, plan);
    }
    table->older = old;
    atomic_store_explicit(&plans->table, table, memory_order_release);
    return FA2_OK;
}

fa2_status fa2i_plans_add(fa2i_plans *plans, const fa2i_plan *plan, const fa2i_plan **ret_plan)
{
    fa2_status st = FA2_OK;
    fa2i_plan_table *table = atomic_load_explicit(&plans->table, memory_order_relaxed);
    fa2i_plan *copy = fa2i_alloc(sizeof(*copy));

    if (copy == NULL)
        return fa2i_fail(FA2_E_MEMORY, "no memory for a plan");
    assert(fa2i_plans_find(plans, &plan->problem) == NULL);
    if (2 * (table->count + 1) > table->mask + 1)
        FA2_TRY(grow(plans, table));
    *copy = *plan;
    table_insert(atomic_load_explicit(&plans->table, memory_order_relaxed), copy);
    *ret_plan = copy;
    copy = NULL; /* ownership has moved to the plans */
done:
    fa2i_free(copy);
    return st;
}

size_t fa2i_plans_count(const fa2i_plans *plans)
{
    return atomic_load_explicit(&plans->table, memory_order_relaxed)->count;
}
