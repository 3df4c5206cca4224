/*
 * The best estimate: if a problem itself was not tuned, all available kernels are compared by their estimated times
 * (gen/core/estimate.lua). Errors and threads: see planner.h.
 */
#ifndef FA2I_PLANNER_ESTIMATE_H
#define FA2I_PLANNER_ESTIMATE_H

#include "runtime/plan/planner_state.h"

/* Creates the planner's generator, and teaches it all that is known about problems of this class. */
fa2_status fa2i_planner_learn(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem);

/* Fills in slot, decision and tried of a plan whose problem is set and belongs to this class. unmapped: see planner.h.
 * If plan->unrounded is set, this problem was tuned, its winner cannot be used, and the decision says so. On return,
 * also after an error, plan->unrounded tells for which problem kernels were compared. */
fa2_status fa2i_planner_pick_estimate(fa2i_planner *planner, fa2i_class *of, bool unmapped,
                                      fa2i_plan *plan);

/* The same from an answer in memory. Returns false if there is no such answer. */
bool fa2i_planner_recall_estimate(fa2i_planner *planner, const fa2i_class *of, bool unmapped,
                                  fa2i_plan *plan);

/* Finds the kernel that would be taken in place of a plan's kernel. */
fa2_status fa2i_planner_find_runner_up(fa2i_planner *planner, const fa2i_plan *plan,
                                       fa2i_runner_up *ret_runner_up);

/* Returns the problem for which the kernels of a plan were compared. */
fa2_problem fa2i_planner_asked(const fa2i_planner *planner, const fa2i_plan *plan);

/* Lists all kernels that were or would be compared for a plan, the best first. The caller owns *ret_options
 * (fa2i_free). */
fa2_status fa2i_planner_options(fa2i_planner *planner, const fa2i_plan *plan,
                                fa2i_option **ret_options, size_t *ret_count);

#endif
