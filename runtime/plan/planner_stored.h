/*
 * Uses a kernel of the database. If its code is lost, or refused by the driver, it is compiled again. Errors and
 * threads: see planner.h.
 */
#ifndef FA2I_PLANNER_STORED_H
#define FA2I_PLANNER_STORED_H

#include "runtime/plan/planner_state.h"

/* Loads the kernel of a key, for a problem of this class. If its code is lost or refused by the driver, it is compiled
 * again if possible, and what the database knows of it stays. A kernel that cannot be used was logged, unless the only
 * cause is that there is no compiler (fa2i_planner_lacks_compiler of the refusal). In that case the caller tries
 * fa2i_planner_use_twin next. */
fa2_status fa2i_planner_use_stored(fa2i_planner *planner, const fa2i_class *of,
                                   const fa2_problem *problem, const fa2i_key *key,
                                   fa2i_attempt *ret_attempt);

/* After that, looks for code of the same variant under another key, among what the generator was taught
 * (fa2i_planner_learn). If there is no usable code, that was logged, and the attempt stays as it is. */
fa2_status fa2i_planner_use_twin(fa2i_planner *planner, const fa2i_class *of,
                                 const fa2_problem *problem, const fa2i_key *key,
                                 fa2i_attempt *attempt);

#endif
