#pragma once
#include "features/params.cuh"

// One flat struct: with its parts as base classes, ptxas chooses other registers (gate.py).
struct Params {
#include "forward/params.def"
#if FA2_FEATURES
    FeatureParams features;
#else
    static constexpr FeatureParams features{};
#endif
};
static_assert(sizeof(Params) == FA2I_EVERY_BYTES + (FA2_SCORE_PARAMS ? FA2I_SCORE_BYTES : 0) +
                                    (FA2_FEATURES ? sizeof(FeatureParams) : 0),
              "what the runtime passes");
