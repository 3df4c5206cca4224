/*
 * The best estimate: where a problem itself was not tuned, every kernel that could be had is compared by
 * the time that it is estimated to take (gen/core/estimate.lua). Errors and threads as in planner.h.
 */
#ifndef FA2I_PLANNER_ESTIMATE_H
#define FA2I_PLANNER_ESTIMATE_H

#include "runtime/plan/planner_state.h"

/* Let the planner have a generator, and let that know what there is to know for problems of this class. */
fa2_status fa2i_planner_learn(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem);

/* Fill in slot, decision and tried of a plan whose problem is set, and of this class. unrounded is set where that very
 * problem was tuned and its winner cannot be used, and the decision then tells that; after an error it says for
 * which problem kernels were compared. unmapped: planner.h. */
fa2_status fa2i_planner_pick_estimate(fa2i_planner *planner, fa2i_class *of, bool unmapped,
                                      fa2i_plan *plan);

/* The same by an answer in memory; false: there is none. */
bool fa2i_planner_recall_estimate(fa2i_planner *planner, const fa2i_class *of, bool unmapped,
                                  fa2i_plan *plan);

/* What would be taken in the place of a plan's kernel. */
fa2_status fa2i_planner_find_runner_up(fa2i_planner *planner, const fa2i_plan *plan,
                                       fa2i_runner_up *ret_runner_up);

/* The problem for which the kernels of a plan were compared. */
fa2_problem fa2i_planner_asked(const fa2i_planner *planner, const fa2i_plan *plan);

/* All that were compared for a plan, or would be, the best first; *ret_options belongs to the caller (fa2i_free). */
fa2_status fa2i_planner_options(fa2i_planner *planner, const fa2i_plan *plan,
                                fa2i_option **ret_options, size_t *ret_count);

#endif
