/*
 * Between bench_gpu.c (kernels, launches, clocks) and bench_case.c (operands in device memory).
 * Contracts of bench_gpu.h hold.
 */
#ifndef FA2I_BENCH_INTERNAL_H
#define FA2I_BENCH_INTERNAL_H

#include "tuner/worker/bench_gpu.h"

/* fa2i_cuda_check that keeps the driver's code in bench->result. */
fa2_status fa2i_bench_check(fa2i_bench *bench, CUresult result, const char *what);

/* Wait for an event (NULL: for the whole stream), under bench->watch. */
fa2_status fa2i_bench_wait(fa2i_bench *bench, CUevent event);

/* Destroy the graphs of all kernels. */
void fa2i_bench_drop_graphs(fa2i_bench *bench);

/* Release operands and workspace; there is no case then. */
void fa2i_bench_drop_case(fa2i_bench *bench);

/* Have a workspace of at least so many bytes. It only grows, so that the kernels of one case share
 * it. */
fa2_status fa2i_bench_give_workspace(fa2i_bench *bench, size_t bytes);

/* The call that a launch is. */
fa2i_arguments fa2i_bench_arguments(const fa2i_bench *bench, size_t workspace_bytes);

/* Poison everything that a launch may write, and the guards. */
fa2_status fa2i_bench_poison(fa2i_bench *bench);

/* Count words that are no longer poison, of all guards: around the outputs, and behind what a kernel
 * may use of the workspace. guard has room for FA2I_GUARD_BYTES. */
fa2_status fa2i_bench_count_overwritten(fa2i_bench *bench, size_t workspace_bytes, uint32_t *guard,
                                        uint32_t *count);

#endif
