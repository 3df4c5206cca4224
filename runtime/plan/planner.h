/*
 * From a problem to a plan: choose the kernel that is estimated to be the fastest, take it from the
 * database or compile it; load it; write down why.
 *
 * Threads. One at a time: the caller holds a lock, and the log is called with that lock held.
 * Errors. What belongs to one kernel (a damaged image, a driver that refuses it, a compiler error)
 * is told through the log, and the next best kernel is taken; it becomes the call's error only when
 * nothing is left. What belongs to the process or the device (memory, a broken context, no NVRTC)
 * is returned at once. After an error the planner can be used on.
 */
#ifndef FA2I_PLANNER_H
#define FA2I_PLANNER_H

#include "runtime/plan/planner_state.h"

/* Open the database that config asks for; config and its strings are copied. A database that cannot
 * be written is used read-only, one that is not there is no error; FA2_E_DATABASE: it is there and
 * cannot be used. */
fa2_status fa2i_planner_init(fa2i_planner *planner, const fa2i_device *device,
                             const fa2_config *config);

void fa2i_planner_done(fa2i_planner *planner); /* zeroed objects are fine */

/* A plan for a valid problem. It borrows its kernel from the planner. unmapped: for calls whose tensors no tensor
 * map expresses: of a kernel that reads none and needs no more workspace than fa2i_op.unmapped_bytes, as such a call
 * brings the one that the problem's own plan asks for. After an error *ret_plan has no kernel, and tells what was
 * decided until then: problem, unrounded, what was passed over. */
fa2_status fa2i_planner_make(fa2i_planner *planner, const fa2_problem *problem, bool unmapped,
                             fa2i_plan *ret_plan);

/* The same from memory alone, without asking the database, the model or the driver, and without a word to the log.
 * false: one of these must be asked; the last message means nothing then. */
bool fa2i_planner_recall(fa2i_planner *planner, const fa2_problem *problem, bool unmapped,
                         fa2i_plan *ret_plan);

/* Say why a plan of this planner is as it is (explain.c). Needs no lock: it reads what does not change. */
void fa2i_planner_explain(const fa2i_planner *planner, const fa2i_plan *plan,
                          const fa2i_runner_up *runner_up, fa2_explanation *ret_explanation);

#endif
