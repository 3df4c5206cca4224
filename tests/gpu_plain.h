/*
 * Attention forward as one would write it down, on the GPU: what tests of backward take O and LSE from.
 * One warp per row, fp32, any head_dim up to 256; compiled by NVRTC, once per process.
 *
 * Errors end the test. Thread-safe.
 */
#ifndef FA2_TESTS_GPU_PLAIN_H
#define FA2_TESTS_GPU_PLAIN_H

#include "tests/gpu.h"

/* Dense arrays of a problem on the host; o as the dtype's bits, lse as fa2_forward gives it.
 * softmax_scale: 0 is the default; softcap: of a problem that has one. */
void gpu_plain_forward(const fa2i_device *device, const fa2_problem *problem, const uint16_t *q,
                       const uint16_t *k, const uint16_t *v, float softmax_scale, float softcap,
                       CUstream stream, uint16_t *o, float *lse);

#endif
