/*
 * Plans: what a context holds ready to launch, one per problem, found without a lock.
 *
 * A table with a limit. A plan stays until FA2I_PLANS_KEPT other problems were added or found after it. Then it may be
 * taken away. The cost of a look-up does not depend on the number of plans.
 *
 * Threads. Any number of threads may call fa2i_plans_find while one changes the table; the caller serialises the other
 * functions. fa2i_plans_done must be the last call. Errors: FA2_E_MEMORY, and the plans are as before.
 */
#ifndef FA2I_PLAN_H
#define FA2I_PLAN_H

#include "runtime/ops/grid.h"
#include "runtime/plan/choose.h"
#include "runtime/plan/kernels.h"

enum { FA2I_PLANS_KEPT = 8192 }; /* fa2.h names it, and what they take */

/* Where a problem's code comes from; told by a planner that foresees, and stores nothing meanwhile. */
typedef enum fa2i_origin {
    FA2I_ORIGIN_STORED = 0, /* the database */
    FA2I_ORIGIN_COMPILED,   /* here, for this problem or an earlier one */
    FA2I_ORIGIN_REMADE,     /* likewise, for what the database has of the problem's kernel is damaged or missing */
    FA2I_ORIGIN_REFUSED     /* likewise, for the driver refuses what the database has of it */
} fa2i_origin;

/* The part of a plan that a launch needs. */
typedef struct fa2i_ready {
    /* Loaded. The context's kernels own it and outlive the plans. NULL: there is none. */
    const fa2i_slot *slot;
    fa2i_grid grid;
    /* The answer to callers: the grid's bytes, or more if the plan for calls without maps needs more. */
    size_t workspace_bytes;
} fa2i_ready;

typedef struct fa2i_plan {
    fa2_problem problem; /* valid: only checked problems get a plan */
    fa2i_ready ready;
    fa2i_origin origin;
    fa2i_decision decision;
    bool unrounded; /* kernels were compared for this very problem, not for the end of its step */
    size_t tried;   /* unless exact: how many kernels, in the order of their estimates */
} fa2i_plan;

typedef struct fa2i_kept_plan fa2i_kept_plan;

typedef struct fa2i_plans {
    _Atomic(fa2i_kept_plan *) *places;
    _Atomic(uint32_t) era;
    /* Only for functions that change the table. */
    size_t count;                    /* plans in it */
    size_t moved;                    /* in this era */
    fa2i_kept_plan *newest, *oldest; /* by when they were added or found, as exact as an era */
} fa2i_plans;

fa2_status fa2i_plans_init(fa2i_plans *plans);
void fa2i_plans_done(fa2i_plans *plans); /* zeroed objects are fine */

/* FA2I_PLAN_AGED: it was found, and the caller is to mark it as used by fa2i_plans_get. */
typedef enum fa2i_found { FA2I_PLAN_NONE = 0, FA2I_PLAN_FRESH, FA2I_PLAN_AGED } fa2i_found;

/* Copy the ready part of this very problem's plan. Takes no lock and allocates nothing. While another thread changes
 * the table, the answer may be FA2I_PLAN_NONE although there is a plan; fa2i_plans_get is always right. */
fa2i_found fa2i_plans_find(const fa2i_plans *plans, const fa2_problem *problem,
                           fa2i_ready *ret_ready);

/* Find the plan of this very problem, and mark it as used. NULL: there is none. Valid until the table changes. */
const fa2i_plan *fa2i_plans_get(fa2i_plans *plans, const fa2_problem *problem);

/* Keep a copy of a plan. It replaces an earlier plan of its problem. */
fa2_status fa2i_plans_put(fa2i_plans *plans, const fa2i_plan *plan);

#endif
