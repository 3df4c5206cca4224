/*
 * A kernel to compile, and its target.
 */
#pragma once

#include "runtime/cuda/compile.h"

static const fa2i_variant variant = {.text = "fwd_sm80 d=64"};
static const fa2i_target sm_86 = {.name = "sm_86"};
static const char source[] = "extern \"C\" __global__ void fwd_sm80(float *out, float x)\n"
                             "{\n"
                             "    out[threadIdx.x] = x * 2.22e-16f;\n"
                             "}\n";
