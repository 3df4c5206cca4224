/*
 * A problem, its arguments and a kernel for the tests of loading and launching. Link the library of fake_cuda.h.
 */
#pragma once

#include "check.h"
#include "fake_cuda.h"
#include "recipe_fixture.h"
#include "runtime/cuda/launch.h"
#include "good_args.h" /* last, because parameters named `problem` would shadow its variable */

/* Returns a plain kernel for a target, as the fake NVRTC makes it. The caller frees it. */
static inline fa2i_kernel artifact(const char *target)
{
    fa2i_kernel kernel = {.variant = {.text = "fwd_sm80 d=64 dtype=fp16 causal=0 br=64",
                                      .recipe = plain_recipe("fwd_sm80", 128, 64, 64, 65536)}};
    snprintf(kernel.target, sizeof kernel.target, "%s", target);
    fake_image("fwd_sm80", target, "text of the kernel", &kernel.image);
    return kernel;
}
