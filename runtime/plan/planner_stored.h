/*
 * Using a kernel of the database; one whose code is lost, or refused by the driver, is compiled again.
 * Errors and threads as in planner.h.
 */
#ifndef FA2I_PLANNER_STORED_H
#define FA2I_PLANNER_STORED_H

#include "runtime/plan/planner_state.h"

/* Load the kernel of a key, for a problem of this class. Where its code is lost, or the driver refuses it, and it can
 * be compiled it is, and what the database knows of it stays. One that cannot be used was told, unless it is refused
 * for want of a compiler alone (fa2i_planner_lacks_compiler of the refusal): then fa2i_planner_use_twin is next. */
fa2_status fa2i_planner_use_stored(fa2i_planner *planner, const fa2i_class *of,
                                   const fa2_problem *problem, const fa2i_key *key,
                                   fa2i_attempt *ret_attempt);

/* After that, have the kernel by code of the same variant under another key, of what the generator was taught
 * (fa2i_planner_learn). One that cannot be had so was told, and the attempt stays as it is. */
fa2_status fa2i_planner_use_twin(fa2i_planner *planner, const fa2i_class *of,
                                 const fa2_problem *problem, const fa2i_key *key,
                                 fa2i_attempt *attempt);

#endif
