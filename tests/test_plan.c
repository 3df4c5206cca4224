/*
 * The plan table: what is added is found, at one address, through growth, and by threads that look
 * while another adds.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "check.h"
#include "runtime/base/alloc.h"
#include "runtime/plan/plan.h"

enum { PLANS = 1000 }; /* five times through growth */

static fa2_problem problem_of(int n)
{
    return (fa2_problem){.batch = 1 + n % 7,
                         .heads_q = 8,
                         .heads_kv = 8,
                         .seq_q = 1 + n,
                         .seq_k = 1 + n,
                         .head_dim = 64};
}

/* Add the nth problem's plan; NULL when that fails. */
static const fa2i_plan *add(fa2i_plans *plans, int n)
{
    const fa2i_plan plan = {.problem = problem_of(n)};
    const fa2i_plan *added = NULL;
    const size_t before = fa2i_plans_count(plans);
    const fa2_status st = fa2i_plans_add(plans, &plan, &added);
    CHECK((st == FA2_OK) == (added != NULL));
    CHECK_EQ(fa2i_plans_count(plans), before + (st == FA2_OK));
    return added;
}

static void test_found_through_growth(void)
{
    fa2i_plans plans = {.table = NULL};
    static const fa2i_plan *added[PLANS];
    int wrong = 0;

    CHECK_EQ(fa2i_plans_init(&plans), FA2_OK);
    for (int n = 0; n < PLANS; n++) {
        const fa2_problem problem = problem_of(n);
        wrong += fa2i_plans_find(&plans, &problem) != NULL;
        added[n] = add(&plans, n);
        wrong += added[n] == NULL;
        wrong += fa2i_plans_find(&plans, &problem) != added[n];
    }
    for (int n = 0; n < PLANS; n++) {
        const fa2_problem problem = problem_of(n);
        wrong += fa2i_plans_find(&plans, &problem) != added[n];
    }
    CHECK_EQ(wrong, 0);
    fa2i_plans_done(&plans);
}

/* Every field tells problems apart, the reserved ones too. */
static void test_each_field_counts(void)
{
    fa2i_plans plans = {.table = NULL};
    CHECK_EQ(fa2i_plans_init(&plans), FA2_OK);
    CHECK(add(&plans, 5) != NULL);
    for (size_t i = 0; i < sizeof(fa2_problem) / sizeof(int32_t); i++) {
        fa2_problem problem = problem_of(5);
        int32_t field;
        memcpy(&field, (char *)&problem + i * sizeof(field), sizeof(field));
        field++;
        memcpy((char *)&problem + i * sizeof(field), &field, sizeof(field));
        CHECK(fa2i_plans_find(&plans, &problem) == NULL);
    }
    fa2i_plans_done(&plans);
}

static void test_memory(void)
{
    fa2i_plans plans = {.table = NULL};
    fa2i_plans_done(&plans); /* zeroed is fine */
    fa2i_alloc_fail_at(1);
    CHECK_EQ(fa2i_plans_init(&plans), FA2_E_MEMORY);
    CHECK_EQ(fa2i_plans_init(&plans), FA2_OK);

    const fa2i_plan *first = add(&plans, 0);
    for (int nth = 1; nth <= 2; nth++) { /* what an addition asks for: the plan, a larger table */
        int added = (int)fa2i_plans_count(&plans);
        for (bool failed = false; !failed; added++) {
            fa2i_alloc_fail_at(nth);
            failed = add(&plans, added) == NULL;
            fa2i_alloc_fail_at(0);
        }
        const fa2_problem last = problem_of(added - 1);
        CHECK(fa2i_plans_find(&plans, &first->problem) == first);
        CHECK(fa2i_plans_find(&plans, &last) == NULL);
        const fa2i_plan *plan = add(&plans, added - 1); /* as before: it can be added now */
        CHECK(plan != NULL && fa2i_plans_find(&plans, &last) == plan);
    }
    CHECK(fa2i_plans_count(&plans) > 2);
    fa2i_plans_done(&plans);
}

/* What readers and the writer share. */
typedef struct shared {
    fa2i_plans plans;
    atomic_int added; /* plans 0 ... added - 1 are there */
    atomic_int wrong;
} shared;

static void *read_all(void *user)
{
    shared *s = user;
    for (int seen = 0; seen < PLANS;) {
        seen = atomic_load(&s->added);
        for (int n = 0; n < seen; n += 7) {
            const fa2_problem problem = problem_of(n);
            const fa2i_plan *plan = fa2i_plans_find(&s->plans, &problem);
            if (plan == NULL || plan->problem.seq_q != problem.seq_q)
                atomic_fetch_add(&s->wrong, 1);
        }
    }
    return NULL;
}

static void test_readers_while_adding(void)
{
    static shared s;
    pthread_t readers[2];

    CHECK_EQ(fa2i_plans_init(&s.plans), FA2_OK);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&readers[i], NULL, read_all, &s), 0);
    for (int n = 0; n < PLANS; n++) {
        if (add(&s.plans, n) == NULL)
            atomic_fetch_add(&s.wrong, 1);
        atomic_store(&s.added, n + 1);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    CHECK_EQ(atomic_load(&s.wrong), 0);
    fa2i_plans_done(&s.plans);
}

int main(void)
{
    test_found_through_growth();
    test_each_field_counts();
    test_memory();
    test_readers_while_adding();
    return check_done();
}
