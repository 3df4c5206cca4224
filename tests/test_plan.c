/*
 * The plan table: stored plans are found, the limit holds, plans in use stay. Threads that look up plans while another
 * thread changes the table never get another problem's plan, or a partial one.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "check.h"
#include "runtime/base/alloc.h"
#include "runtime/plan/plan.h"

static fa2_problem problem_of(int n)
{
    return (fa2_problem){.struct_bytes = sizeof(fa2_problem),
                         .batch = 1 + n % 7,
                         .heads_q = 8,
                         .heads_kv = 8,
                         .seq_q = 1 + n,
                         .seq_k = 1 + n,
                         .head_dim = 64};
}

/* Each word of the plan's data is the number. The slot's address is never dereferenced. */
static fa2i_plan plan_of(int n, int kernel)
{
    fa2i_plan plan = {.problem = problem_of(n), .tried = (size_t)n};
    plan.ready.slot = (const fa2i_slot *)((uintptr_t)(kernel + 1) << 8);
    plan.ready.workspace_bytes = (size_t)n;
    plan.ready.grid = (fa2i_grid){.row_tiles = n,
                                  .key_tiles = n,
                                  .splits = n,
                                  .slots = n,
                                  .workspace_bytes = (size_t)n,
                                  .partial_bytes = (size_t)n,
                                  .queries_at = (size_t)n,
                                  .rows_bytes = (size_t)n};
    for (int i = 0; i < FA2I_RECIPE_STEPS; i++)
        plan.ready.grid.blocks[i] = (unsigned)n;
    return plan;
}

static bool is_of(const fa2i_ready *ready, int n, int kernel)
{
    const fa2i_plan plan = plan_of(n, kernel);
    return memcmp(ready, &plan.ready, sizeof *ready) == 0;
}

static fa2_status put(fa2i_plans *plans, int n, int kernel)
{
    const fa2i_plan plan = plan_of(n, kernel);
    return fa2i_plans_put(plans, &plan);
}

/* Returns true if the nth problem has a plan. Both look-ups must agree. The plan becomes the most recently used. */
static bool has(fa2i_plans *plans, int n)
{
    const fa2_problem problem = problem_of(n);
    fa2i_ready ready;
    const fa2i_found found = fa2i_plans_find(plans, &problem, &ready);
    const fa2i_plan *plan = fa2i_plans_get(plans, &problem);
    CHECK((found != FA2I_PLAN_NONE) == (plan != NULL));
    CHECK(plan == NULL || (is_of(&ready, n, n) && is_of(&plan->ready, n, n) && plan->tried == (size_t)n));
    return plan != NULL;
}

static bool is_there(const fa2i_plans *plans, int n)
{
    const fa2_problem problem = problem_of(n);
    fa2i_ready ready;
    return fa2i_plans_find(plans, &problem, &ready) != FA2I_PLAN_NONE;
}

static void test_found(void)
{
    enum { PLANS = 1000 };
    fa2i_plans plans = {.count = 0};
    int wrong = 0;

    CHECK_EQ(fa2i_plans_init(&plans), FA2_OK);
    for (int n = 0; n < PLANS; n++) {
        wrong += is_there(&plans, n);
        wrong += put(&plans, n, n) != FA2_OK;
        wrong += !has(&plans, n);
    }
    for (int n = 0; n < PLANS; n++)
        wrong += !has(&plans, n);
    CHECK_EQ(wrong, 0);
    CHECK_EQ(plans.count, PLANS);

    const fa2_problem problem = problem_of(5);
    fa2i_ready ready;
    CHECK_EQ(put(&plans, 5, 77), FA2_OK); /* replaces the other plan */
    CHECK_EQ(plans.count, PLANS);
    CHECK(fa2i_plans_find(&plans, &problem, &ready) != FA2I_PLAN_NONE && is_of(&ready, 5, 77));
    fa2i_plans_done(&plans);
}

/* Every field distinguishes problems, the reserved ones too. */
static void test_each_field_counts(void)
{
    fa2i_plans plans = {.count = 0};
    fa2i_ready ready;
    CHECK_EQ(fa2i_plans_init(&plans), FA2_OK);
    CHECK_EQ(put(&plans, 5, 5), FA2_OK);
    for (size_t i = offsetof(fa2_problem, op) / sizeof(int32_t); i < sizeof(fa2_problem) / sizeof(int32_t); i++) {
        fa2_problem problem = problem_of(5);
        int32_t field;
        memcpy(&field, (char *)&problem + i * sizeof(field), sizeof(field));
        field++;
        memcpy((char *)&problem + i * sizeof(field), &field, sizeof(field));
        CHECK(fa2i_plans_find(&plans, &problem, &ready) == FA2I_PLAN_NONE);
        CHECK(fa2i_plans_get(&plans, &problem) == NULL);
    }
    fa2i_plans_done(&plans);
}

/* As fa2.h says: a plan stays until FA2I_PLANS_KEPT others were added or used after it. A caller that finds it aged
 * marks it as used. */
static void test_limit(void)
{
    enum { PLANS = 5 * FA2I_PLANS_KEPT };
    fa2i_plans plans = {.count = 0};
    const fa2_problem used = problem_of(3);
    fa2i_ready ready;
    int wrong = 0, kept = 0, aged = 0;

    CHECK_EQ(fa2i_plans_init(&plans), FA2_OK);
    for (int n = 0; n < PLANS; n++) {
        wrong += put(&plans, n, n) != FA2_OK;
        const int last = n - FA2I_PLANS_KEPT + 1;
        wrong += last >= 0 && !is_there(&plans, last);
        const fa2i_found found = n < 3 ? FA2I_PLAN_FRESH : fa2i_plans_find(&plans, &used, &ready);
        wrong += found == FA2I_PLAN_NONE;
        aged += found == FA2I_PLAN_AGED;
        if (found == FA2I_PLAN_AGED)
            wrong += fa2i_plans_get(&plans, &used) == NULL;
    }
    CHECK_EQ(wrong, 0);
    for (int n = 0; n < PLANS; n++)
        kept += is_there(&plans, n);
    CHECK(kept > FA2I_PLANS_KEPT && kept < FA2I_PLANS_KEPT + FA2I_PLANS_KEPT / 2);
    CHECK_EQ(plans.count, kept);
    CHECK(aged > 0 && aged < 50); /* a known problem seldom needs the lock */
    fa2i_plans_done(&plans);
}

static void test_memory(void)
{
    fa2i_plans plans = {.count = 0};
    fa2i_plans_done(&plans); /* accepts a zeroed table */
    fa2i_alloc_fail_at(1);
    CHECK_EQ(fa2i_plans_init(&plans), FA2_E_MEMORY);
    CHECK_EQ(fa2i_plans_init(&plans), FA2_OK);
    CHECK_EQ(put(&plans, 0, 0), FA2_OK);
    fa2i_alloc_fail_at(1);
    CHECK_EQ(put(&plans, 1, 1), FA2_E_MEMORY);
    fa2i_alloc_fail_at(0);
    CHECK(has(&plans, 0) && !has(&plans, 1));
    CHECK_EQ(put(&plans, 1, 1), FA2_OK);
    CHECK(has(&plans, 1));
    fa2i_plans_done(&plans);
}

/* ---- readers during a writer's changes ---- */

enum { HOT = 16, ADDED = 20 * FA2I_PLANS_KEPT };

typedef struct shared {
    fa2i_plans plans;
    atomic_int last; /* the newest plan */
    atomic_int wrong;
    atomic_long seen;
} shared;

/* Plans near the limit are those whose memory will be reused next. */
static void *read_all(void *user)
{
    shared *s = user;
    fa2i_ready ready;
    long seen = 0;
    for (int last = 0; last < ADDED - 1;) {
        last = atomic_load(&s->last);
        for (int i = 0; i < 1000; i++) {
            const int n = i % 2 == 0 ? i % HOT : last - FA2I_PLANS_KEPT - FA2I_PLANS_KEPT / 4 + i % 64;
            const fa2_problem problem = problem_of(n < 0 ? 0 : n);
            if (fa2i_plans_find(&s->plans, &problem, &ready) == FA2I_PLAN_NONE)
                continue;
            seen++;
            if (!is_of(&ready, n < 0 ? 0 : n, n < 0 ? 0 : n))
                atomic_fetch_add(&s->wrong, 1);
        }
    }
    atomic_fetch_add(&s->seen, seen);
    return NULL;
}

static void test_readers_while_changing(void)
{
    static shared s;
    pthread_t readers[3];

    CHECK_EQ(fa2i_plans_init(&s.plans), FA2_OK);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_create(&readers[i], NULL, read_all, &s), 0);
    for (int n = 0; n < ADDED; n++) {
        const fa2_problem hot = problem_of(n % HOT);
        if (put(&s.plans, n, n) != FA2_OK || fa2i_plans_get(&s.plans, &hot) == NULL)
            atomic_fetch_add(&s.wrong, 1);
        atomic_store(&s.last, n);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(readers[i], NULL);
    CHECK_EQ(atomic_load(&s.wrong), 0);
    CHECK(atomic_load(&s.seen) > 1000);
    fa2i_plans_done(&s.plans);
}

int main(void)
{
    test_found();
    test_each_field_counts();
    test_limit();
    test_memory();
    test_readers_while_changing();
    return check_done();
}
