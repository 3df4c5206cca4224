#pragma once
#include "backward/scores.cuh"

constexpr bool kBiasGradient = false;

// The empty policy: the gradient of a bias is not wanted.
__device__ __forceinline__ void add_dbias(const Scores &, const Params &, int64, int, int, int) {}
