#pragma once
#include "features/params.cuh"
#define FA2_FEATURES false

// Constants instead of parameters, for kernels without features: those that code which is compiled out reads.
struct FeatureParams {
    static constexpr const float *carried = nullptr;
    static constexpr Strides carried_stride{};
    static constexpr float inverse_scale = 0.0f, keep_scale = 0.0f;
    static constexpr int slots = 0, total_q = 0, drop_bound = 0;
    static constexpr int64 bias_batch = 0, bias_head = 0;
    static constexpr PageSteps k_steps{}, v_steps{};
};
