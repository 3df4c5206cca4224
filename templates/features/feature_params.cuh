#pragma once
#include "features/params.cuh"
#define FA2_FEATURES true

// The parameters of features; present in all kernels with a feature.
struct FeatureParams {
#include "features/params.def"
};
