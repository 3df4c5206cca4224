/*
 * A problem, its arguments and a kernel for the tests of loading and launching. Include fake_cuda.h's library.
 */
#ifndef FA2_TESTS_LAUNCH_FIXTURE_H
#define FA2_TESTS_LAUNCH_FIXTURE_H

#include <stdint.h>
#include "check.h"
#include "fake_cuda.h"
#include "recipe_fixture.h"
#include "runtime/cuda/launch.h"

static const fa2_problem problem = {
    .batch = 2, .heads_q = 8, .heads_kv = 2, .seq_q = 100, .seq_k = 200, .head_dim = 64};

/* [B, S, H, D], at addresses that nothing reads. */
static inline fa2_forward_args good_args(void)
{
    const int64_t d = problem.head_dim;
    const int64_t q_row = d * problem.heads_q, kv_row = d * problem.heads_kv;
    const fa2_tensor q = {(void *)0x10000, q_row * problem.seq_q, q_row, d};
    const fa2_tensor k = {(void *)0x20000, kv_row * problem.seq_k, kv_row, d};
    fa2_forward_args args = {.q = q, .k = k, .v = k, .o = q};
    args.v.data = (void *)0x30000;
    args.o.data = (void *)0x40000;
    return args;
}

/* An artifact of a plain kernel for a target, as the fake NVRTC makes it; the caller frees it. */
static inline fa2i_kernel artifact(const char *target)
{
    fa2i_kernel kernel = {.variant = {.text = "fwd_sm80 d=64 dtype=fp16 causal=0 br=64",
                                      .recipe = plain_recipe("fwd_sm80", 128, 64, 64, 65536)}};
    snprintf(kernel.target, sizeof kernel.target, "%s", target);
    fake_image("fwd_sm80", target, "text of the kernel", &kernel.image);
    return kernel;
}

#endif
