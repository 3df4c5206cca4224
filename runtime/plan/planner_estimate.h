/*
 * The best estimate: where a problem itself was not tuned, every kernel that could be had is compared by
 * the time that it is estimated to take (gen/core/estimate.lua). Errors and threads as in planner.h.
 */
#ifndef FA2I_PLANNER_ESTIMATE_H
#define FA2I_PLANNER_ESTIMATE_H

#include "runtime/plan/planner_state.h"

/* Fill in slot, decision and tried of a plan whose problem is set, and of this class. was_tuned: that very
 * problem was, but its winner cannot be used. unmapped: planner.h. */
fa2_status fa2i_planner_pick_estimate(fa2i_planner *planner, fa2i_class *of, bool was_tuned,
                                      bool unmapped, fa2i_plan *plan);

/* Add the runner-up to the decision of a plan that was not chosen by estimate. */
fa2_status fa2i_planner_find_runner_up(fa2i_planner *planner, const fa2i_plan *plan,
                                       fa2i_decision *decision);

#endif
