/*
 * Gets a kernel that is known by its parameters. It is taken from the database by its key; else it is compiled, stored
 * and loaded. Errors and threads: see planner.h.
 */
#ifndef FA2I_PLANNER_COMPILE_H
#define FA2I_PLANNER_COMPILE_H

#include "runtime/plan/planner_state.h"

/* Gets a variant by its text. A variant of another class than the problem's, or one that this generator does not know,
 * cannot be used. FA2_E_NO_NVRTC, FA2_E_FORBIDDEN: it must be compiled and cannot be. FA2_E_GENERATOR: the scripts
 * fail. */
fa2_status fa2i_planner_compile(fa2i_planner *planner, const fa2_problem *problem, const char *text,
                                fa2i_attempt *ret_attempt);

/* Finds the compilation target, once. FA2_E_NO_NVRTC, FA2_E_FORBIDDEN: there is no compiler, or it may not be used. The
 * message names the problem that needed one. */
fa2_status fa2i_planner_find_target(fa2i_planner *planner, const fa2_problem *problem);

/* The first returns whether a status means that nothing can be compiled, whatever the kernel. The second says why, in
 * words. */
bool fa2i_planner_lacks_compiler(fa2_status st);
const char *fa2i_planner_why_no_compiler(fa2_status st);

/* Creates the planner's generator if it does not exist yet. */
fa2_status fa2i_planner_generator(fa2i_planner *planner);

/* Returns the card for which kernels are generated: the device's, or one that stands for fa2_config.arch. */
fa2i_card fa2i_planner_card(const fa2i_planner *planner);

#endif
