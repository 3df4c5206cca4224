#pragma once
#include "hopper/tma.cuh"

// ---- the tensor maps of a launch, in the order of the recipe -----------------------------------------------------
struct MapOfQ {
    TensorMap q;
};

struct NoMapOfQ {
    static constexpr TensorMap q{};
};

struct MapsOfKeys {
    TensorMap k, v;
};

struct NoMapsOfKeys {
    static constexpr TensorMap k{}, v{};
};

struct MapOfO {
    TensorMap o;
};

struct NoMapOfO {
    static constexpr TensorMap o{};
};

struct MapOfBias {
    TensorMap bias;
};

struct NoMapOfBias {
    static constexpr TensorMap bias{};
};

struct TensorMaps : Either<kPackedHeads, NoMapOfQ, MapOfQ>::Type,
                    Either<kRounded, NoMapsOfKeys, MapsOfKeys>::Type,
                    Either<kOByMap, MapOfO, NoMapOfO>::Type,
                    Either<kBiasStaged, MapOfBias, NoMapOfBias>::Type {
};
static_assert(sizeof(TensorMaps) == sizeof(TensorMap) * (2 * !kRounded + !kPackedHeads + kOByMap + kBiasStaged),
              "what the runtime passes");
