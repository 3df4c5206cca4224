/*
 * Getting a kernel that is known by its parameters: from the database by its key, else compiled, stored
 * and loaded. Errors and threads as in planner.h.
 */
#ifndef FA2I_PLANNER_COMPILE_H
#define FA2I_PLANNER_COMPILE_H

#include "runtime/plan/planner_state.h"

/* A variant by its text; one that does not serve the class of the problem, or that this generator does
 * not know, cannot be used. FA2_E_NO_NVRTC, FA2_E_FORBIDDEN when it must be compiled and cannot be;
 * FA2_E_GENERATOR when the scripts fail. */
fa2_status fa2i_planner_compile(fa2i_planner *planner, const fa2_problem *problem, const char *text,
                                fa2i_attempt *ret_attempt);

/* Find what is compiled for, once. FA2_E_NO_NVRTC, FA2_E_FORBIDDEN: there is no compiler, or none may be used, and
 * the message says for which problem one was needed. */
fa2_status fa2i_planner_find_target(fa2i_planner *planner, const fa2_problem *problem);

/* Whether a status says that nothing is compiled, whatever the kernel; and why, for people. */
bool fa2i_planner_lacks_compiler(fa2_status st);
const char *fa2i_planner_why_no_compiler(fa2_status st);

/* The planner's generator, created when it is first wanted. */
fa2_status fa2i_planner_generator(fa2i_planner *planner);

/* The card for which kernels are generated: the device's, or one of fa2_config.arch. */
fa2i_card fa2i_planner_card(const fa2i_planner *planner);

#endif
