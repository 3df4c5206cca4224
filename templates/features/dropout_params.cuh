#pragma once
#define FA2_DROPOUT_PARAMS true
#include "features/feature_params.cuh"
