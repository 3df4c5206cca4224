#pragma once
#include "lib/types.cuh"

// ---- parameters ---------------------------------------------------------------------------------------------------
//
// The lists of members (params.def) are expanded with FA2I_MEMBER. If a kernel lacks the parameters of cap and
// window, or the last ones of the features, these are expanded with FA2I_CONSTANT to constants of the same names. So
// code which is compiled out still has types. Policies: FeatureParams (feature_params.cuh, no_feature_params.cuh), and
// Params of the operation.
struct PageSteps {
    uint32 page, row, bytes;
};

// clang-format off
#define FA2I_INPUT   const char *
#define FA2I_OUTPUT  char *
#define FA2I_FLOATS  float *
#define FA2I_STRIDES Strides
#define FA2I_FLOAT   float
#define FA2I_INT     int
#define FA2I_INT64   int64
#define FA2I_INT64S  const int64 *
#define FA2I_INTS    const int *
#define FA2I_STEPS   PageSteps
#define FA2I_MEMBER(kind, name)   FA2I_##kind name;
#define FA2I_CONSTANT(kind, name) static constexpr FA2I_##kind name{};
// clang-format on

#ifndef FA2_DROPOUT_PARAMS
#define FA2_DROPOUT_PARAMS false
#endif
#define FA2I_PARAM FA2I_MEMBER
#if FA2_SCORE_PARAMS
#define FA2I_FEATURE_PARAM FA2I_MEMBER
#else
#define FA2I_FEATURE_PARAM FA2I_CONSTANT
#endif
// A kernel with some members has those before them, too.
#if FA2_KV_PARAMS || FA2_CARRY_PARAMS || FA2_DROPOUT_PARAMS
#define FA2I_KV_PARAM FA2I_MEMBER
#else
#define FA2I_KV_PARAM FA2I_CONSTANT
#endif
#if FA2_CARRY_PARAMS || FA2_DROPOUT_PARAMS
#define FA2I_CARRY_PARAM FA2I_MEMBER
#else
#define FA2I_CARRY_PARAM FA2I_CONSTANT
#endif
#if FA2_DROPOUT_PARAMS
#define FA2I_DROPOUT_PARAM FA2I_MEMBER
#else
#define FA2I_DROPOUT_PARAM FA2I_CONSTANT
#endif
