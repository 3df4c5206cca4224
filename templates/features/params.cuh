#pragma once
#include "lib/types.cuh"

// ---- parameters ---------------------------------------------------------------------------------------------------
//
// Lists of members (params.def) are expanded with FA2I_MEMBER; with FA2I_CONSTANT where a kernel has no such
// parameters: constants of the same names, so that text which is compiled out still has types.
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
#define FA2I_NOTHING(kind, name)
// clang-format on

// What every kernel of an operation has.
#define FA2I_PARAM         FA2I_MEMBER
#define FA2I_FEATURE_PARAM FA2I_NOTHING
struct ForwardParams {
#include "forward/params.def"
};

struct BackwardParams {
#include "backward/params.def"
};

// The parameters of features, which all kernels with a feature have.
struct FeatureParams {
#include "features/params.def"
};
#undef FA2I_PARAM
#undef FA2I_FEATURE_PARAM

// Those of softcap and window, the same for all operations, which come between the two.
#define FA2I_PARAM         FA2I_NOTHING
#define FA2I_FEATURE_PARAM FA2I_MEMBER
struct WithScoreParams {
#include "forward/params.def"
};
#undef FA2I_FEATURE_PARAM
#define FA2I_FEATURE_PARAM FA2I_CONSTANT
struct WithoutScoreParams {
#include "forward/params.def"
};
#undef FA2I_PARAM
#undef FA2I_FEATURE_PARAM

struct WithFeatureParams {
    FeatureParams features;
};

struct WithoutFeatureParams {
    static constexpr FeatureParams features{};
};

struct Params : Either<kBackward, BackwardParams, ForwardParams>::Type,
                Either<kScoreParams, WithScoreParams, WithoutScoreParams>::Type,
                Either<kFeatures, WithFeatureParams, WithoutFeatureParams>::Type {
};
static_assert(sizeof(Params) ==
                  (kBackward ? 320 : 192) + (kScoreParams ? 16 : 0) + (kFeatures ? sizeof(FeatureParams) : 0),
              "what the runtime passes");
