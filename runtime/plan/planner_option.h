/*
 * Has the kernel of an option: loads it if the database has it, else compiles it. Errors and threads: see planner.h.
 */
#ifndef FA2I_PLANNER_OPTION_H
#define FA2I_PLANNER_OPTION_H

#include "runtime/plan/planner_state.h"

/* Has the kernel of an option (fa2i_planner_options). Calls and explanations both use this function. */
fa2_status fa2i_planner_have(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem,
                             const fa2i_option *option, fa2i_attempt *ret_attempt);

/* Predicts the result of fa2i_planner_have without loading or compiling. */
fa2_status fa2i_planner_look(fa2i_planner *planner, const fa2_problem *asked,
                             const fa2i_option *option, fa2i_attempt *ret_attempt);

#endif
