/*
 * Getting a kernel that is known by its parameters: from the database by its key, else compiled, stored
 * and loaded. Errors and threads as in planner.h.
 */
#ifndef FA2I_PLANNER_COMPILE_H
#define FA2I_PLANNER_COMPILE_H

#include "runtime/plan/planner_state.h"

/* A variant's fate. slot == NULL: it cannot be used; refusal says why, and so does the last message.
 * foreseen: it was refused without a try. */
typedef struct fa2i_attempt {
    fa2i_slot *slot;
    fa2_status refusal;
    bool foreseen;
} fa2i_attempt;

/* A variant by its text; one that does not serve the class of the problem, or that this generator does
 * not know, cannot be used. FA2_E_NO_NVRTC when it must be compiled and there is none; FA2_E_GENERATOR when
 * the scripts fail. */
fa2_status fa2i_planner_compile(fa2i_planner *planner, const fa2_problem *problem, const char *text,
                                fa2i_attempt *ret_attempt);

/* The planner's generator, created when it is first wanted. */
fa2_status fa2i_planner_generator(fa2i_planner *planner);

/* The card for which kernels are generated: the device's, or one of fa2_config.arch. */
fa2i_card fa2i_planner_card(const fa2i_planner *planner);

#endif
