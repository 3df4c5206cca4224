/*
 * Using a kernel of the database; one whose code is lost is compiled again. Errors and threads as in
 * planner.h.
 */
#ifndef FA2I_PLANNER_STORED_H
#define FA2I_PLANNER_STORED_H

#include "runtime/plan/planner_state.h"

/* Load the kernel of a key, for a problem of this class. *ret_slot: it is loaded; NULL: it cannot be used,
 * which was told. Where its code is lost and there is NVRTC it is compiled, and what the database knows of
 * it stays. *ret_for_now: it may be readable later. */
fa2_status fa2i_planner_use_stored(fa2i_planner *planner, const fa2i_class *of,
                                   const fa2_problem *problem, const fa2i_key *key,
                                   const fa2i_slot **ret_slot, bool *ret_for_now);

#endif
