/*
 * Makes a kernel ready: takes it from the database, where lost or refused code is replaced, or compiles it. Errors and
 * threads: see planner.h.
 */
#pragma once

#include "runtime/plan/state.h"

/* Has the kernel of an option (fa2i_planner_options). Calls and explanations both use this function. */
fa2_status fa2i_planner_have(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem,
                             const fa2i_option *option, fa2i_attempt *ret_attempt);

/* Predicts the result of fa2i_planner_have without loading or compiling. */
fa2_status fa2i_planner_look(fa2i_planner *planner, const fa2_problem *asked, const fa2i_option *option,
                             fa2i_attempt *ret_attempt);

/* Loads the kernel of a key, for a problem of this class. If its code is lost or refused by the driver, it is compiled
 * again if possible, and what the database knows of it stays. A kernel that cannot be used was logged, unless the only
 * cause is that there is no compiler (fa2i_planner_lacks_compiler of the refusal). In that case the caller tries
 * fa2i_planner_use_twin next. */
fa2_status fa2i_planner_use_stored(fa2i_planner *planner, const fa2i_class *of, const fa2_problem *problem,
                                   const fa2i_key *key, fa2i_attempt *ret_attempt);

/* After that, looks for code of the same variant under another key, among what the generator has learned
 * (fa2i_planner_learn). If there is no usable code, that was logged, and the attempt stays as it is. */
fa2_status fa2i_planner_use_twin(fa2i_planner *planner, const fa2i_class *of, const fa2_problem *problem,
                                 const fa2i_key *key, fa2i_attempt *attempt);

/* Finds the compilation target, once. FA2_E_NO_NVRTC, FA2_E_FORBIDDEN: there is no compiler, or it may not be used. The
 * message names the problem that needed one. */
fa2_status fa2i_planner_find_target(fa2i_planner *planner, const fa2_problem *problem);

/* The same for a call that fails: the message also says for which SMs the database has winners of the problem. FA2_OK:
 * there is a compiler. */
fa2_status fa2i_planner_fail_compiler(fa2i_planner *planner, const fa2_problem *problem);

/* Returns whether a status means that nothing can be compiled, whatever the kernel. */
bool fa2i_planner_lacks_compiler(fa2_status st);
