/*
 * Plain attention forward on the GPU: tests of backward get O and LSE from it. One warp per row, fp32, any head_dim up
 * to 256. NVRTC compiles it once per process.
 *
 * Errors end the test. Thread-safe.
 */
#pragma once

#include "tests/gpu.h"

/* All arrays are dense host arrays. o holds the dtype's bits, lse is as fa2_forward's. softmax_scale: 0 is the default.
 * softcap counts only if the problem has one. */
void gpu_plain_forward(const fa2i_device *device, const fa2_problem *problem, const uint16_t *q, const uint16_t *k,
                       const uint16_t *v, float softmax_scale, float softcap, CUstream stream, uint16_t *o, float *lse);
