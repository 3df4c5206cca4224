#pragma once
#include "features/params.cuh"

// The parameters of features; present in all kernels with a feature.
struct FeatureParams {
#include "features/params.def"
};
