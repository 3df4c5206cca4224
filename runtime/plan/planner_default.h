/*
 * The default rule: nothing tuned can be used, so the cost model chooses, and what it chooses is
 * compiled. Errors and threads as in planner.h.
 */
#ifndef FA2I_PLANNER_DEFAULT_H
#define FA2I_PLANNER_DEFAULT_H

#include "runtime/plan/planner_state.h"

/* Fill in slot, decision and tried of a plan whose problem is set, and of this class. */
fa2_status fa2i_planner_pick_default(fa2i_planner *planner, fa2i_class *of, fa2i_plan *plan);

#endif
