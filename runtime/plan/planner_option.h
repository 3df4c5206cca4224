/*
 * Having the kernel of an option: what the database has is loaded, all else compiled. Errors and threads as in
 * planner.h.
 */
#ifndef FA2I_PLANNER_OPTION_H
#define FA2I_PLANNER_OPTION_H

#include "runtime/plan/planner_state.h"

/* Have the kernel of an option (fa2i_planner_options): the one way to it, for calls and for what is said of them. */
fa2_status fa2i_planner_have(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem,
                             const fa2i_option *option, fa2i_attempt *ret_attempt);

/* What would come of that, without loading or compiling it. */
fa2_status fa2i_planner_look(fa2i_planner *planner, const fa2_problem *asked,
                             const fa2i_option *option, fa2i_attempt *ret_attempt);

#endif
