#pragma once
#define FA2_FEATURES true
#include "features/params.cuh"

// The parameters of features; present in all kernels with a feature.
struct FeatureParams {
#include "features/params.def"
};
