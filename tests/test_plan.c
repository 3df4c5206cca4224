/*
 * The plan table: what is added is found, at one address, through growth, and by threads that look
 * while another adds.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "check.h"
#include "runtime/base/alloc.h"
#include "runtime/plan.h"

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

static fa2i_plan *plan_of(int n)
{
    fa2i_plan *plan = fa2i_alloc(sizeof(*plan));
    if (plan != NULL)
        plan->problem = problem_of(n);
    return plan;
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
        fa2i_plan *plan = plan_of(n);
        added[n] = plan;
        wrong += fa2i_plans_add(&plans, plan) != FA2_OK;
        wrong += fa2i_plans_find(&plans, &problem) != plan;
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
    CHECK_EQ(fa2i_plans_add(&plans, plan_of(5)), FA2_OK);
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

    int added = 0;
    fa2i_plan *plan = NULL;
    for (;; added++) { /* until growth fails */
        plan = plan_of(added);
        fa2i_alloc_fail_at(1);
        fa2_status st = fa2i_plans_add(&plans, plan);
        fa2i_alloc_fail_at(0);
        if (st != FA2_OK)
            break;
    }
    CHECK(added > 1);
    CHECK(fa2i_plans_find(&plans, &plan->problem) == NULL);
    const fa2_problem first = problem_of(0);
    CHECK(fa2i_plans_find(&plans, &first) != NULL);
    CHECK_EQ(fa2i_plans_add(&plans, plan), FA2_OK); /* as before: it can be added now */
    CHECK(fa2i_plans_find(&plans, &plan->problem) == plan);
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
        if (fa2i_plans_add(&s.plans, plan_of(n)) != FA2_OK)
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
