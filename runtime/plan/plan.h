/*
 * Plans: what a context holds ready to launch, one per problem, found without a lock.
 *
 * The table is limited. A plan stays until FA2I_PLANS_KEPT other problems were added or found after it. After that it
 * may be removed. The cost of a look-up does not depend on the number of plans.
 *
 * Threads: any number of threads may call fa2i_plans_find while another one changes the table. The caller serialises
 * the other functions. fa2i_plans_done must be the last call. Errors: FA2_E_MEMORY, and the plans are unchanged.
 */
#pragma once

#include "runtime/ops/grid.h"
#include "runtime/plan/choose.h"
#include "runtime/plan/kernels.h"

enum { FA2I_PLANS_KEPT = 8192 }; /* fa2.h documents this number, and the memory that plans take */

/* The origin of a problem's code. In the predicting mode it is predicted, and nothing is stored. */
typedef enum fa2i_origin {
    FA2I_ORIGIN_STORED = 0, /* the database */
    FA2I_ORIGIN_COMPILED,   /* compiled here, for this problem or an earlier one */
    FA2I_ORIGIN_REMADE,     /* compiled here, because the database's code of the kernel is damaged or missing */
    FA2I_ORIGIN_REFUSED     /* compiled here, because the driver refuses the database's code */
} fa2i_origin;

/* The part of a plan that a launch needs. */
typedef struct fa2i_ready {
    /* The loaded kernel, or NULL. The context's kernels own it and outlive the plans. */
    const fa2i_slot *slot;
    fa2i_grid grid;
    /* The size that callers are told: the grid's, or the unmapped plan's if that needs more. */
    size_t workspace_bytes;
    fa2_rule rule; /* that chose the kernel, for counting */
} fa2i_ready;

typedef struct fa2i_plan {
    fa2_problem problem; /* valid: only checked problems get a plan */
    fa2i_ready ready;
    fa2i_origin origin;
    fa2i_decision decision;
    bool unrounded; /* kernels were compared for exactly this problem, not for the end of its step */
    size_t tried;   /* how many kernels were tried, in the order of their estimates; unused with FA2_RULE_EXACT */
} fa2i_plan;

typedef struct fa2i_kept_plan fa2i_kept_plan;

typedef struct fa2i_plans {
    _Atomic(fa2i_kept_plan *) *places;
    _Atomic(uint32_t) era;
    /* Only for functions that change the table. */
    size_t count;                    /* number of plans */
    size_t moved;                    /* number of moves in this era */
    fa2i_kept_plan *newest, *oldest; /* ordered by when they were added or found, to within an era */
} fa2i_plans;

fa2_status fa2i_plans_init(fa2i_plans *plans);
void fa2i_plans_done(fa2i_plans *plans); /* zeroed objects are fine */

/* FA2I_PLAN_AGED: found, and the caller must mark it as used by fa2i_plans_get. */
typedef enum fa2i_found { FA2I_PLAN_NONE = 0, FA2I_PLAN_FRESH, FA2I_PLAN_AGED } fa2i_found;

/* Copies the ready part of exactly this problem's plan. Takes no lock and allocates nothing. While another thread
 * changes the table, the answer may be FA2I_PLAN_NONE although there is a plan. fa2i_plans_get is always right. */
fa2i_found fa2i_plans_find(const fa2i_plans *plans, const fa2_problem *problem, fa2i_ready *ret_ready);

/* Finds the plan of exactly this problem, and marks it as used. Returns NULL if not found. The result is valid
 * until the table changes. */
const fa2i_plan *fa2i_plans_get(fa2i_plans *plans, const fa2_problem *problem);

/* Keeps a copy of a plan. It replaces an earlier plan of the same problem. */
fa2_status fa2i_plans_put(fa2i_plans *plans, const fa2i_plan *plan);
