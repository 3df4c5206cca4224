/*
 * Shared by bench_gpu.c (device, kernels, release of memory), and by bench_case.c (operands in device memory),
 * bench_sample.c (launches, clocks) and probe.c, which use it. The contracts of bench_gpu.h hold.
 */
#pragma once

#include "tuner/worker/bench_gpu.h"

/* Like fa2i_cuda_check, and keeps the driver's code in bench->result. */
fa2_status fa2i_bench_check(fa2i_bench *bench, CUresult result, const char *what);

/* Waits for an event (NULL: for the whole stream), under bench->watch. */
fa2_status fa2i_bench_wait(fa2i_bench *bench, CUevent event);

/* Releases the workspace. */
void fa2i_bench_drop_workspace(fa2i_bench *bench);

/* Releases operands and workspace. Then there is no case. */
void fa2i_bench_drop_case(fa2i_bench *bench);

/* Makes the workspace at least this large. It only grows, so that the kernels of one case share it. */
fa2_status fa2i_bench_give_workspace(fa2i_bench *bench, size_t bytes);

/* Returns the arguments of a launch. */
fa2i_arguments fa2i_bench_arguments(const fa2i_bench *bench, size_t workspace_bytes);

/* Poisons everything that a launch may write, and the guards. */
fa2_status fa2i_bench_poison(fa2i_bench *bench);

/* Counts the words of all guards that are no longer poison: around the outputs, and after the part of the workspace
 * that the kernel may use. guard has room for FA2I_GUARD_BYTES. */
fa2_status fa2i_bench_count_overwritten(fa2i_bench *bench, size_t workspace_bytes, uint32_t *guard, uint32_t *count);
