/*
 * Lists the kernels that a problem can have, the best first by their estimated times (gen/core/estimate.lua). Errors
 * and threads: see planner.h.
 */
#pragma once

#include "runtime/plan/state.h"

/* Creates the planner's generator if it does not exist yet. */
fa2_status fa2i_planner_generator(fa2i_planner *planner);

/* Returns the card for which kernels are generated: the device's, or one that stands for fa2_config.arch. */
fa2i_card fa2i_planner_card(const fa2i_planner *planner);

/* Creates the planner's generator, and teaches it all that is known about problems of this class. */
fa2_status fa2i_planner_learn(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem);

/* Learns, and lists all kernels for a problem. The caller owns *ret_options (fa2i_free). */
fa2_status fa2i_planner_rank(fa2i_planner *planner, fa2i_class *of, const fa2_problem *problem,
                             fa2i_option **ret_options, size_t *ret_count);

/* Returns the problem for which the kernels of a plan were compared. */
fa2_problem fa2i_planner_asked(const fa2i_planner *planner, const fa2i_plan *plan);

/* Lists all kernels that were or would be compared for a plan. The caller owns *ret_options (fa2i_free). */
fa2_status fa2i_planner_options(fa2i_planner *planner, const fa2i_plan *plan, fa2i_option **ret_options,
                                size_t *ret_count);
