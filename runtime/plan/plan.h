/*
 * Plans: what a context holds ready to launch, one per problem, found without a lock.
 *
 * Threads. Any number of threads may call fa2i_plans_find while one adds; adding and counting are
 * serialised by the caller. fa2i_plans_done must be the last call. Errors: FA2_E_MEMORY, and the
 * plans are as before. Ownership. A plan that was added lives until fa2i_plans_done, at one
 * address.
 */
#ifndef FA2I_PLAN_H
#define FA2I_PLAN_H

#include "runtime/plan/choose.h"
#include "runtime/plan/kernels.h"
#include "runtime/ops/grid.h"

/* Where a problem's code comes from; told by a planner that foresees, and stores nothing meanwhile. */
typedef enum fa2i_origin {
    FA2I_ORIGIN_STORED = 0, /* the database */
    FA2I_ORIGIN_COMPILED,   /* here, for this problem or an earlier one */
    FA2I_ORIGIN_REMADE,     /* likewise, for what the database has of the problem's kernel is damaged or missing */
    FA2I_ORIGIN_REFUSED     /* likewise, for the driver refuses what the database has of it */
} fa2i_origin;

typedef struct fa2i_plan {
    fa2_problem problem;   /* valid: only checked problems get a plan */
    const fa2i_slot *slot; /* loaded; belongs to the context's kernels, which outlive the plans */
    fa2i_origin origin;
    fa2i_grid grid;
    /* What a caller is told: the grid's, or what the plan of its calls without maps needs. */
    size_t workspace_bytes;
    fa2i_decision decision;
    bool unrounded; /* kernels were compared for this very problem, not for the end of its step */
    size_t tried;   /* unless exact: how many kernels, in the order of their estimates */
    _Atomic(uint64_t) calls; /* that were counted: fa2i_plan_count */
} fa2i_plan;

/* Calls of a plan that is kept or not; the one thing of it that changes. Any thread. */
void fa2i_plan_count(const fa2i_plan *plan, uint64_t calls);
uint64_t fa2i_plan_take_calls(const fa2i_plan *plan); /* and count from 0 on */

typedef struct fa2i_plan_table fa2i_plan_table;

typedef struct fa2i_plans {
    _Atomic(fa2i_plan_table *) table;
} fa2i_plans;

fa2_status fa2i_plans_init(fa2i_plans *plans);
void fa2i_plans_done(fa2i_plans *plans); /* zeroed objects are fine */

/* The plan of this very problem, or NULL. Takes no lock and allocates nothing. */
const fa2i_plan *fa2i_plans_find(fa2i_plans *plans, const fa2_problem *problem);

/* Add a copy of a plan whose problem has none yet, and borrow it. */
fa2_status fa2i_plans_add(fa2i_plans *plans, const fa2i_plan *plan, const fa2i_plan **ret_plan);

/* Call each(user, plan) for every plan; as fa2i_plans_find, beside one that adds. */
void fa2i_plans_each(const fa2i_plans *plans, void (*each)(void *user, const fa2i_plan *plan),
                     void *user);

/* How many there are. */
size_t fa2i_plans_count(const fa2i_plans *plans);

#endif
