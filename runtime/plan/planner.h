/*
 * From a problem to a plan: chooses the kernel that is estimated to be the fastest, takes it from the database or
 * compiles it, loads it, and records why.
 *
 * Threads: one at a time. The caller holds a lock, also while the log is called. Errors: a fault of one kernel is
 * logged, and the next best kernel is taken. Examples are damaged code, a driver that refuses it, a compiler error. It
 * becomes the call's error only when no kernel is left. A fault of the process or the device (memory, a broken context,
 * no NVRTC) is returned at once. The planner remains usable after an error.
 */
#pragma once

#include "runtime/plan/state.h"

/* Opens the database that config asks for. Copies config and its strings. A database that cannot be written is used
 * read-only. A missing one is no error. FA2_E_DATABASE: it exists and cannot be used. */
fa2_status fa2i_planner_init(fa2i_planner *planner, const fa2i_device *device, const fa2_config *config);

void fa2i_planner_done(fa2i_planner *planner); /* zeroed objects are fine */

/* Makes a plan for a valid problem. The plan borrows its kernel from the planner. unmapped: the plan is for calls whose
 * tensors no tensor map expresses. Its kernel then reads no tensor maps. It needs at most fa2i_op.unmapped_bytes of
 * workspace, because such a call brings the workspace of the problem's own plan. After an error *ret_plan has no
 * kernel, and holds what was decided until then: problem, unrounded, kernels passed over. */
fa2_status fa2i_planner_make(fa2i_planner *planner, const fa2_problem *problem, bool unmapped, fa2i_plan *ret_plan);

/* The same from memory alone: it asks neither the database, the model nor the driver, and logs nothing. Returns false
 * if one of them must be asked; the last message means nothing then. */
bool fa2i_planner_recall(fa2i_planner *planner, const fa2_problem *problem, bool unmapped, fa2i_plan *ret_plan);

/* Finds the kernel that would be taken in place of a plan's kernel. */
fa2_status fa2i_planner_find_runner_up(fa2i_planner *planner, const fa2i_plan *plan, fa2i_runner_up *ret_runner_up);

/* Explains a plan of this planner (explain.c). Needs no lock, because it reads only what does not change. */
void fa2i_planner_explain(const fa2i_planner *planner, const fa2i_plan *plan, const fa2i_runner_up *runner_up,
                          fa2_explanation *ret_explanation);
