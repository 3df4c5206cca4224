/*
 * What the calls of all operations have in common: softmax scale, softcap, window and workspace.
 *
 * Pure; thread-safe. Errors: FA2_E_INVALID naming argument and limit.
 */
#ifndef FA2I_OPS_CALL_H
#define FA2I_OPS_CALL_H

#include <float.h>
#include "runtime/base/record.h"
#include "runtime/ops/memory.h"

enum { FA2I_WORKSPACE_ALIGN_BYTES = 256 };

/* The scale times log2(e) must be a float, too. */
#define FA2I_SCALE_MAX ((float)(FLT_MAX * 0.69))

/* As a call gives it. */
fa2_status fa2i_softmax_scale_check(float softmax_scale);

/* The softmax scale of a call that gives this one. */
double fa2i_softmax_scale(const fa2_problem *problem, float softmax_scale);

/* Of a problem that asks for one; softmax_scale: as the call gives it. */
fa2_status fa2i_softcap_check(const fa2_problem *problem, float softmax_scale, float softcap);

/* What a window's end that is unbounded is to kernels: more than any length, and room to add one. */
enum { FA2I_WINDOW_UNBOUNDED = 1 << 30 };

/* How far from a query's position the keys end that it sees, as kernels have it; without a window, too. */
int32_t fa2i_window_left(const fa2_problem *problem);
int32_t fa2i_window_right(const fa2_problem *problem);

/* What holds of every workspace that is given, whether it is needed or not. */
fa2_status fa2i_workspace_check(const void *workspace, size_t workspace_bytes);

/* The workspace is large enough for what is needed of it, which is more than 0: *ret_memory. */
fa2_status fa2i_workspace_memory(const void *workspace, size_t workspace_bytes, size_t needed_bytes,
                                 fa2i_memory *ret_memory);

/* FA2_E_UNSUPPORTED when some step's blocks cannot be divided into its clusters. */
fa2_status fa2i_clusters_check(const fa2i_recipe *recipe, const unsigned *blocks);

#endif
